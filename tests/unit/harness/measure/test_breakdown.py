"""The latency breakdown in real time: what workers tell of it is weighted by their records."""

import pytest

from harness.measure.cells import breakdown_entry, breakdown_of, commits_of, pace_ms
from impls.protocol.report import Report


def report(records, commits, **breakdown):
    return Report(0, records=records, commits=commits, breakdown=breakdown)


def test_means_are_weighted_by_records():
    reports = [report(30, 3, to_router=4.0, apply=6.0), report(10, 1, to_router=8.0, apply=2.0)]
    assert commits_of(reports) == 4
    found = breakdown_of(reports)
    assert (found["to_router"], found["apply"]) == (5.0, 5.0)


def test_workers_without_records_tell_of_no_way():
    assert breakdown_of([report(5, 2, apply=4.0), report(0, 0, apply=9.0), report(7, 1)])["apply"] == 4.0
    assert breakdown_of([report(0, 1)]) == {}
    assert breakdown_of([]) == {}


def line(records, begin_us, commits=2, latency=10.0, **breakdown):
    return {
        "records": records, "begin_us": begin_us, "end_us": begin_us + 150_000, "turns": commits, "way_ms": breakdown,
        "latency_ms": latency, "ms": {"total": 200.0, "between": 50.0},
    }  # fmt: skip


def test_an_entry_has_means_over_epochs_and_what_they_add_up_to():
    found = breakdown_entry(
        [line(30, 0, route=1.0, apply=5.0), line(10, 200_000, route=2.0, apply=1.0), line(0, 400_000)], 8.0
    )
    assert found["mean_ms"] == {"route": pytest.approx(1.25), "apply": pytest.approx(4.0)}
    assert found["share"] == pytest.approx(5.25 / 8)
    assert found["turns_per_s"] == pytest.approx(6 / 0.6)
    assert breakdown_entry([line(0, 0)], None) is None
    assert breakdown_entry([line(5, 0, apply=1.0)], None)["share"] is None


def test_the_pace_of_an_epoch_is_its_latency_and_of_an_epoch_its_time():
    assert pace_ms(line(5, 0, latency=12.5)) == 12.5
    assert pace_ms(line(0, 0, latency=None)) is None
    assert pace_ms({"ms": {"total": 180.0}}) == 180.0
