"""Timers and windows as state: fired in order, moved, logged, snapshotted and recovered."""

import json

import numpy as np
import pytest
from timed import BINS, TimedRun, close_all, spread

from impls import catalog
from impls.errors import UsageError
from impls.operators import HashCount
from impls.operators.timed import KeyedProcess, clock_of
from impls.placement import initial
from impls.protocol.controller import Controller
from impls.protocol.eventtime import EventClock, EventTime
from impls.protocol.plan import WrittenPlan
from impls.protocol.view import Observation


@pytest.fixture(autouse=True)
def closed():
    yield
    close_all()


class Sessions(KeyedProcess):
    """Counts records per key and sends the count 10 after the last one."""

    event_time = EventTime("at", partitions=1)
    columns = ("at",)

    def record(self, record, one):
        count, until = one.value() or (0, None)
        if until is not None:
            one.cancel_timer(until)
        one.set_value((count + 1, one.time + 10))
        one.set_timer(one.time + 10)

    def timer(self, one):
        one.emit({"key": int.from_bytes(one.key, "big"), "until": one.time, "count": one.value()[0]})
        one.set_value(None)


def at(key, time, partition=0):
    return partition, key, {"at": time}


def test_a_timer_fires_when_the_watermark_has_reached_it_and_not_before(tmp_path):
    run = TimedRun(tmp_path, Sessions())
    run.epoch([at(1, 0), at(2, 3), at(1, 5)])
    run.epoch([at(3, 14)])
    assert run.results() == []
    run.epoch([at(4, 15)])
    assert run.results() == [{"key": 2, "until": 13, "count": 1}]
    run.epoch()
    assert run.results()[1:] == [{"key": 1, "until": 15, "count": 2}]
    assert run.total("fired") == 2


def test_a_record_does_not_find_a_timer_that_is_due(tmp_path):
    run = TimedRun(tmp_path, Sessions())
    run.epoch([at(1, 0)])
    run.epoch([at(2, 10)])
    run.epoch([at(1, 10)])  # the watermark is 10: the session that ends at 10 has ended
    run.epoch([at(2, 50)])
    run.settle()
    assert [(r["key"], r["until"], r["count"]) for r in run.results() if r.get("key") == 1] == [(1, 10, 1), (1, 20, 1)]


def test_late_records_are_counted_and_dropped(tmp_path):
    run = TimedRun(tmp_path, Sessions())
    run.epoch([at(1, 30)])
    run.epoch([at(2, 29), at(3, 30)])
    run.epoch([at(9, 99)])
    run.settle()
    assert run.total("late") == 1
    assert sorted(r["key"] for r in run.results() if "key" in r) == [1, 3]


def test_the_watermark_waits_for_every_partition_allows_disorder_and_never_falls():
    clock = EventClock(EventTime("at", disorder=5, partitions=2), 4)
    clock.observe([(0, 100)], [])
    assert clock.watermark is None
    clock.observe([(1, 50)], [])
    assert clock.watermark == 45
    clock.observe([(1, 20)], [])
    assert clock.watermark == 45
    clock.observe([(1, 200)], [])
    assert clock.watermark == 95


def test_what_is_sent_waits_for_the_bins_whose_timers_have_not_run():
    clock = EventClock(EventTime("at"), 4)
    clock.observe([(0, 100)], [])
    clock.hold(clock.watermark, None)
    clock.observe([(0, 200)], [3])
    assert clock.sent is None
    assert not clock.settled
    clock.hold(clock.watermark, None)
    clock.observe([], [])
    assert (clock.sent, clock.settled) == (200, True)


def test_a_clock_is_restored_as_it_was():
    clock = EventClock(EventTime("at"), 4)
    clock.observe([(0, 100)], [])
    clock.hold(clock.watermark, None)
    clock.observe([(0, 200), (1, 120)], [3])
    other = EventClock(EventTime("at"), 4)
    other.restore(clock.to_json())
    assert other.to_json() == clock.to_json()
    for each in (clock, other):
        each.hold(each.watermark, None)
        each.observe([], [])
    assert other.sent == clock.sent == 120


def load(epochs, seed=0, keys=40, jitter=0):
    """The same records for every run; epochs of a few, up to `jitter` late."""
    random, time = np.random.default_rng(seed), 0
    for epoch in range(epochs):
        rows = []
        for _ in range(int(random.integers(0, 20))):
            time += int(random.integers(0, 4))
            rows.append(at(int(random.integers(0, keys)), time - int(random.integers(0, jitter + 1))))
        yield epoch, rows
    yield epochs, [at(0, time + 1000)]


def whole(run, epochs=30, **kwargs):
    for _, rows in load(epochs, **kwargs):
        run.epoch(rows)
    run.settle()
    return run


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    run = whole(TimedRun(tmp_path_factory.mktemp("undisturbed"), Sessions(), mechanism="none"))
    close_all()
    assert sum(run.multiset().values()) > 100
    return run.multiset()


MECHANISMS = [
    "megaphone-all-at-once", "megaphone-fluid", "megaphone-batched", "meces", "order-unaware", "partial-pause", "rhino",
    "replicated-dataflow", "runtime-restart",
]  # fmt: skip


@pytest.mark.sampled(5)
@pytest.mark.parametrize(("mechanism", "attempts"), [*((m, 1) for m in MECHANISMS), ("meces", 2)])
def test_moves_change_nothing(tmp_path, undisturbed, mechanism, attempts):
    run = TimedRun(tmp_path, Sessions(), mechanism=mechanism, attempts=attempts)
    for epoch, rows in load(30):
        if epoch in {5, 15}:
            run.move(spread(epoch, 4 if epoch == 5 else 2))
        run.epoch(rows)
    run.settle()
    assert run.multiset() == undisturbed
    assert sum(len(report.moves.bins) for record in run.records for report in record.reports) > BINS


@pytest.mark.parametrize("late", ["drop", "keep"])
def test_the_same_records_are_late_whatever_moves(tmp_path, late):
    kind = type("Sessions", (Sessions,), {"late": late})
    runs = [TimedRun(tmp_path / name, kind(), mechanism=name) for name in ("none", "partial-pause")]
    for run in runs:
        for epoch, rows in load(20, jitter=9):
            if epoch in {4, 12} and run.mechanism != "none":
                run.move(spread(epoch, 3))
            run.epoch(rows)
        run.settle()
    still, moved = runs
    assert moved.multiset() == still.multiset()
    assert moved.total("late") == still.total("late") > 10
    counted = [sum(r.get("count", 0) for r in run.results()) for run in runs]
    total = sum(len(rows) for _, rows in load(20, jitter=9)) - 1  # the session of the last record does not end
    assert counted == [total - still.total("late") if late == "drop" else total] * 2


def test_a_controller_with_a_clock_goes_on_from_its_base(tmp_path):
    run = TimedRun(tmp_path, Sessions(), mechanism="partial-pause")
    for epoch, rows in load(12):
        if epoch == 9:
            run.move(spread(1, 3))
        run.epoch(rows)
    stored = json.loads(json.dumps(run.controller.to_json()))
    other = Controller(initial(BINS, 2, "contiguous"), catalog.make("partial-pause"), clock_of(Sessions(), BINS))
    other.restore(stored)
    mine, theirs = run.controller.plan(run.number + 1, 1), other.plan(run.number + 1, 1)
    assert mine.to_json() == theirs.to_json()
    assert mine.watermark is not None
    assert WrittenPlan.from_json(json.loads(json.dumps(mine.to_json()))).watermark == mine.watermark


def test_without_event_time_plans_and_observations_say_nothing_of_it():
    plan = Controller(initial(BINS, 2, "contiguous"), catalog.make("none")).plan(0, 1).to_json()
    seen = Observation(0).to_json()
    assert not {"watermark", "times", "waits"} & {*plan, *seen}


def test_restarts_lost_workers_and_epochs_run_again_change_nothing(tmp_path, undisturbed):
    run = TimedRun(tmp_path, Sessions(), mechanism="megaphone-fluid")
    for epoch, rows in load(30):
        if epoch == 8:
            run.move(spread(1, 3))
        run.epoch(rows)
        if epoch % 7 == 3:
            run.restart()
            run.again(rows)
        if epoch % 11 == 5:
            run.lose(epoch % 3)
    run.settle()
    assert run.multiset() == undisturbed
    assert any(report.recovered for record in run.records for report in record.reports)


def test_state_is_gone_when_its_timers_have_fired(tmp_path):
    run = whole(TimedRun(tmp_path, Sessions()))
    run.epoch([at(0, 5000)])
    run.settle()
    assert int(run.controller.size.sum()) < 200  # what is left is the last record's session


def test_an_operator_with_event_time_must_read_its_column():
    class Blind(Sessions):
        columns = ()

    with pytest.raises(UsageError, match="reads its column"):
        clock_of(Blind(), BINS)
    assert clock_of(HashCount(), BINS) is None
