"""Warm-up, migrations, durations and the peak ratio, from arrays with known answers."""

import numpy as np
import pytest

from harness.measure.cells import Cells
from harness.measure.hdr import highest_equivalent
from harness.measure.migrations import Migration, migrations_of, moved
from harness.measure.windows import (
    TAGS,
    Peak,
    peak_of,
    recovered_s,
    settled_s,
    slow_s,
    steady_span_us,
    tag_records,
    timeline,
    warm_up,
)
from impls.worker.cells import INTERVAL_US, quantise

START_US = 1_767_225_600_000_000
S = 1_000_000


def at(seconds):
    return START_US + round(seconds * S)


def cells_with(latency_s, *, seconds=30.0, step_s=0.01):
    """A record every `step_s`; latency_s(t) is the latency of the one scheduled at t."""
    times = np.arange(0, seconds, step_s)
    scheduled = START_US + np.round(times * S).astype(np.int64)
    latency = np.array([round(latency_s(t) * S) for t in times], np.int64)
    return Cells(
        epoch=np.zeros(len(times), np.int64),
        done_us=scheduled + latency,
        interval=scheduled // INTERVAL_US,
        latency_us=quantise(latency),
        count=np.ones(len(times), np.int64),
        moved=np.zeros(len(times), bool),
    )


def migration(begin_s, end_s, name="m0"):
    return Migration(name, "", at(begin_s), None if end_s is None else at(end_s), ())


def epochs_of(times_ms, *, first_s=0.0):
    out, now = [], at(first_s)
    for number, total in enumerate(times_ms):
        end = now + round(total * 1000)
        out.append({"epoch": number, "begin_us": now, "end_us": end, "ms": {"total": total}})
        now = end
    return out


def ms(seconds):
    return float(highest_equivalent(np.array([round(seconds * S)]))[0]) / 1e3


def test_warm_up_ends_where_the_epoch_time_settles():
    found = warm_up(epochs_of([900, 700, 500, 300] + [200] * 30), START_US, None)
    assert found.reason == ""
    assert at(1.6) <= found.end_us <= at(2.4)


def test_one_slow_epoch_does_not_undo_the_warm_up():
    times = [200] * 40
    times[20] = 900
    assert warm_up(epochs_of(times), START_US, None).end_us == START_US


def test_the_lead_in_is_warm_up_in_any_case():
    assert warm_up(epochs_of([200] * 40), START_US, None, lead_in_us=5 * S).end_us == at(5)


def test_epochs_before_the_load_and_after_the_first_command_do_not_count():
    early, late = epochs_of([5_000] * 3, first_s=-15), epochs_of([3_000] * 40, first_s=4)
    assert warm_up([*early, *epochs_of([200] * 20), *late], START_US, at(4)).end_us == START_US


@pytest.mark.parametrize(
    ("times", "why"), [([200] * 7, "only 7 epochs"), ([200 * 1.3**n for n in range(16)], "did not stay near")]
)
def test_a_run_that_never_settles_says_why(times, why):
    found = warm_up(epochs_of(times), START_US, None)
    assert found.end_us is None
    assert why in found.reason


def test_without_warm_up_nothing_is_steady():
    cells = cells_with(lambda _: 0.2)
    tags = tag_records(cells, [migration(10, 12)], None)
    assert set(tags.tolist()) == {TAGS.index(name) for name in ("warmup", "migrating", "after")}
    assert steady_span_us(cells, tags) is None
    assert peak_of(cells, tags, migration(10, 12)) == Peak(ms(0.2))


def test_a_record_on_its_way_when_a_migration_begins_is_migrating():
    cells = cells_with(lambda _: 0.5)
    names = [TAGS[tag] for tag in tag_records(cells, [migration(10, 12)], at(2))]
    due = ((cells.scheduled_us - START_US) / S).round(2).tolist()
    by_time = dict(zip(due, names, strict=True))
    assert by_time[1.9] == "warmup"
    assert by_time[9.4] == "steady"
    assert by_time[9.6] == by_time[11.9] == "migrating"
    assert by_time[12.1] == "after"


def test_a_migration_that_never_ended_lasts_to_the_end():
    cells = cells_with(lambda _: 0.1)
    tags = tag_records(cells, [migration(10, None)], at(2))
    assert TAGS[int(tags[-1])] == "migrating"
    assert peak_of(cells, tags, migration(10, None)).ratio is None


def test_peak_ratio_is_over_the_median_of_steady_maxima():
    def latency(t):
        if 10 <= t < 11:
            return 0.9
        return {3: 0.4, 4: 0.2, 5: 0.3}.get(int(t), 0.1) if round(t % 1, 2) == 0.5 else 0.1

    cells = cells_with(latency)
    tags = tag_records(cells, [migration(10, 11)], at(3))
    peak = peak_of(cells, tags, migration(10, 11))
    assert peak.peak_ms == ms(0.9)
    assert (peak.window_s, peak.windows) == (1.0, 6)
    assert peak.ratio == pytest.approx(0.9 / 0.15, rel=2e-3)  # the maxima are 0.4, 0.2, 0.3, 0.1, 0.1 and 0.1


def test_a_long_migration_is_compared_with_thirds_of_the_steady_part():
    cells = cells_with(lambda t: 0.6 if t >= 9 else 0.2)
    tags = tag_records(cells, [migration(9, 25)], at(3))
    peak = peak_of(cells, tags, migration(9, 25))
    assert peak.windows == 3
    assert peak.window_s == pytest.approx((9 - 0.2 - 3) / 3, abs=0.02)
    assert peak.ratio == pytest.approx(3, rel=2e-3)


def test_slow_time_is_the_sum_of_windows_over_twice_the_median():
    cells = cells_with(lambda t: 0.5 if 10 <= t < 12 else 0.3 if 12 <= t < 13 else 0.2)
    line = timeline(cells, tag_records(cells, [migration(10, 11)], at(2)))
    assert slow_s(line, 200_000, at(10), None) == 2.0
    assert slow_s(line, 200_000, at(10), at(11)) == 1.0
    assert slow_s(line, 200_000, at(13), None) == 0.0
    assert slow_s(line, None, at(10), None) is None


def test_settled_is_the_end_of_the_last_window_over_twice_the_median():
    cells = cells_with(lambda t: 0.5 if 10 <= t < 12 or 14 <= t < 14.25 else 0.3 if 12 <= t < 13 else 0.2)
    line = timeline(cells, tag_records(cells, [migration(10, 11)], at(2)))
    assert settled_s(line, 200_000, at(10), None) == 4.25
    assert settled_s(line, 200_000, at(10), at(13)) == 2.0
    assert settled_s(line, 200_000, at(15), None) == 0.0
    assert settled_s(line, 200_000, at(10), at(12)) is None, "it is not back when its time is over"
    assert settled_s(line, None, at(10), None) is None


def test_what_the_next_migration_delays_does_not_unsettle_the_one_before():
    cells = cells_with(
        lambda t: 0.5 if 10 <= t < 11 or t >= 14.8 else 0.2
    )  # a migration at 15 s delays all from 14.8 s on
    line = timeline(cells, tag_records(cells, [migration(10, 11), migration(15, 16)], at(2)))
    assert settled_s(line, 200_000, at(10), at(15)) == 1.0


def test_recovery_needs_a_hundred_calm_seconds():
    cells = cells_with(lambda t: 0.5 if 10 <= t < 12 or 14 <= t < 14.25 else 0.2, seconds=130, step_s=0.05)
    line = timeline(cells, tag_records(cells, [migration(10, 12)], at(2)))
    assert recovered_s(line, 200_000, at(10), None) == 4.25
    assert recovered_s(line, 600_000, at(10), None) == 0.0
    assert recovered_s(line, 200_000, at(10), at(60)) is None
    assert recovered_s(line, None, at(10), None) is None


def line_of(number, begin_s, end_s, *, bins=0, pull=0.0):
    return {
        "epoch": number, "begin_us": at(begin_s), "end_us": at(end_s), "moved_bins": bins, "moved_bytes": bins * 100,
        "longest_pull_ms": pull,
    }  # fmt: skip


def event(kind, at_s, name="c", **fields):
    return {"at_us": at(at_s), "kind": kind, "id": name, **fields}


def half(begin_s, *, epoch, bins):
    """A migration that was asked for at 0.5 s, begins with an epoch, and ends with epoch 3."""
    begun = event("migration_begin", begin_s, epoch=epoch, bins=bins)
    return [event("command", 0.5, label="half"), begun, event("migration_end", 4, epoch=3)]


EPOCHS = [line_of(0, 0, 1), line_of(1, 1, 2, bins=3, pull=7.0), line_of(2, 2, 3), line_of(3, 3, 4, bins=2, pull=9.0)]


def test_a_migration_lasts_from_its_command_to_its_last_epoch():
    events = half(2, epoch=1, bins=5)
    (found,) = migrations_of(events, EPOCHS)
    assert found == Migration("c", "half", at(0.5), at(4), (1, 2, 3))
    what = moved(found, events, EPOCHS)
    assert (what.bins, what.size, what.duration_s, what.longest_pull_ms) == (5, 500, 3.0, 9.0)


def test_without_a_command_it_begins_with_its_first_epoch():
    events = [event("migration_begin", 2, epoch=1, bins=5, label="x"), event("migration_end", 2, epoch=1)]
    (found,) = migrations_of([*events, *events], EPOCHS)
    assert found == Migration("c", "x", at(1), at(2), (1,))


def test_a_command_that_was_never_carried_out_is_a_migration_without_end():
    (found,) = migrations_of([event("command", 3.5, label="late")], EPOCHS)
    assert found == Migration("c", "late", at(3.5), None, ())
    assert moved(found, [], EPOCHS).duration_s is None


def test_a_migration_that_stopped_the_query_lasts_from_the_stop_until_its_bins_serve_again():
    stops = [{"at_us": at(second), "kind": "query_stop"} for second in (0.2, 2.5, 9)]
    events = half(3, epoch=3, bins=2) + stops
    (found,) = migrations_of(events, EPOCHS)
    what = moved(found, events, EPOCHS)
    assert (what.bins, what.size, what.longest_pull_ms) == (2, 200, 9.0)
    assert what.duration_s == pytest.approx(1.5)
