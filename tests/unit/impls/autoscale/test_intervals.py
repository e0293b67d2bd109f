"""An interval from what epochs report and the source has, and where it begins and ends around migrations."""

import numpy as np
import pytest

from impls.autoscale.intervals import Gathering, Look, Sample, percentile_ms
from impls.protocol.plan import EpochPlan, WrittenPlan
from impls.protocol.report import Queues, Report
from impls.worker.cells import CELL, make_cells

PLACE = ("in", 0)


def sample(epoch, *, read, applied=(100, 100), useful=(0.5, 0.25), migrating=False, queued=0, workers=2):
    return Sample(epoch, float(epoch), {PLACE: read}, workers, migrating, applied, useful, queued, 1)


def look(at, end):
    return Look(at, {PLACE: end})


def test_a_sample_is_of_the_reports_of_an_epoch():
    plan = WrittenPlan(7, 1, 3, EpochPlan(np.array([0, 2, 2, 0], np.int32)))
    ms = {"open": 9.0, "pull": 9.0, "apply": 20.0, "commit": 3.0, "log": 2.0, "send": 9.0}
    reports = [
        Report(0, records=5, ms=ms, host="a"),
        Report(1),
        Report(2, records=7, ms={"apply": 10.0}, queues=Queues(([1, 3], [4, 5])), host="b"),
    ]
    cells = np.zeros(1, CELL)
    found = Sample.of(plan, reports, [cells, np.empty(0, CELL)], {PLACE: 12}, end_s=70.0)
    assert (found.epoch, found.end_s, found.workers, found.migrating) == (7, 70.0, 2, False)
    assert found.applied == (5, 0, 7)
    assert found.useful_s == (pytest.approx(0.025), 0.0, pytest.approx(0.010))
    assert (found.queued, found.hosts, len(found.cells)) == (9, 3, 1)


def test_an_interval_is_the_sum_of_its_epochs_between_two_looks():
    gathering = Gathering(0.99)
    gathering.add(sample(1, read=1000))
    assert gathering.last is None
    gathering.begin(gathering.first, look(1.1, 1200))
    gathering.add(sample(2, read=1200))
    gathering.add(sample(3, read=1400, applied=(150, 50), queued=30))
    found = gathering.close(gathering.last, look(3.1, 2000))
    assert (found.begin_s, found.end_s, found.epochs, found.workers) == (1.0, 3.0, 2, 2)
    assert found.offered_rate == pytest.approx(400)
    assert found.processed_rate == 200
    assert found.applied == (250, 150)
    assert found.useful_s == (1.0, 0.5)
    assert (found.backlog_before, found.backlog) == (200, 630)
    assert found.latency_ms is None
    assert gathering.first is None, "the next one has begun where this one ended"


def test_an_epoch_behind_the_one_that_ends_an_interval_belongs_to_the_next():
    gathering = Gathering(0.99)
    gathering.add(sample(1, read=0))
    gathering.begin(gathering.first, look(1.0, 0))
    gathering.add(sample(2, read=200))
    last = gathering.last
    gathering.add(sample(3, read=400))
    assert gathering.close(last, look(2.0, 400)).epochs == 1
    assert gathering.close(gathering.last, look(3.0, 400)).applied == (100, 100)


def test_a_filter_before_the_operator_is_seen_in_offered_rate_and_backlog():
    gathering = Gathering(0.99)
    gathering.add(sample(1, read=0))
    gathering.begin(gathering.first, look(1.0, 0))
    gathering.add(sample(2, read=800))
    found = gathering.close(gathering.last, look(2.0, 1600))
    assert found.offered_rate == pytest.approx(400)
    assert found.backlog == pytest.approx(200)


def test_records_that_wait_in_a_queue_are_taken_for_no_filter():
    gathering = Gathering(0.99)
    gathering.add(sample(1, read=0))
    gathering.add(sample(2, read=2000, applied=(1000, 1000)))
    gathering.begin(gathering.first, look(2.0, 2200))
    gathering.add(sample(3, read=2400, applied=(100, 100)))
    found = gathering.close(gathering.last, look(3.0, 2400))
    assert found.offered_rate == pytest.approx(200 * 2200 / 2400)


@pytest.mark.parametrize("other", [{"migrating": True}, {"workers": 3}])
def test_a_migration_or_another_number_of_workers_ends_an_interval_unfinished(other):
    gathering = Gathering(0.99)
    gathering.add(sample(1, read=0))
    gathering.begin(gathering.first, look(1.0, 0))
    gathering.add(sample(2, read=200))
    gathering.add(sample(3, read=400, **other))
    assert gathering.last is None
    assert gathering.disturbed
    assert gathering.first.epoch == 3, "what ends a migration is where an interval may begin"


def test_the_percentile_is_of_all_records():
    fast, _ = make_cells(np.full(98, 10_000), 20_000, np.zeros(98, bool))
    slow, _ = make_cells(np.full(2, 10_000), 1_010_000, np.zeros(2, bool))
    assert percentile_ms([fast, slow], 0.5) == pytest.approx(10, rel=1e-3)
    assert percentile_ms([slow, fast], 0.98) == pytest.approx(10, rel=1e-3)
    assert percentile_ms([slow, fast], 0.99) == pytest.approx(1000, rel=1e-3)
    assert percentile_ms([], 0.5) is None
