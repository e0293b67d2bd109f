"""What latencies say over time: tags, timeline, durations and the peak ratio; pure functions on arrays."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.measure.cells import Cells, pace_ms
from harness.measure.hdr import highest_equivalent, percentiles
from harness.measure.migrations import Migration
from impls.worker.cells import INTERVAL_US

TAGS = ("warmup", "steady", "migrating", "after")
_WARMUP, _STEADY, _MIGRATING, _AFTER = range(4)
_FOREVER = np.iinfo(np.int64).max
_WINDOWS_MIN = 3
_SLOW_FACTOR = 2.0
_CALM_S, _CALM_FACTOR = 100.0, 1.1


def overlaps(cells: Cells, migration: Migration) -> NDArray[np.bool_]:
    """Returns which records were on their way, from schedule to result, during a migration."""
    end = _FOREVER if migration.end_us is None else migration.end_us
    return (cells.scheduled_us <= end) & (cells.done_us >= migration.begin_us)


def tag_records(cells: Cells, migrations: Sequence[Migration], warm_us: int | None) -> NDArray[np.int8]:
    """Returns each record's tag as an index of `TAGS`, exactly one.

    migrating: its way overlaps a migration; else, before the first migration: warmup if scheduled before `warm_us`
    (or if that is None: it never warmed up), steady from then on; after: everything else.
    """
    scheduled = cells.scheduled_us
    tags = np.full(len(cells), _STEADY, np.int8)
    tags[scheduled < (_FOREVER if warm_us is None else warm_us)] = _WARMUP
    if migrations:
        tags[scheduled > min(m.begin_us for m in migrations)] = _AFTER
    for migration in migrations:
        tags[overlaps(cells, migration)] = _MIGRATING
    return tags


@dataclass(frozen=True)
class Timeline:
    """One row per 250 ms of scheduled time that has records: begin, records, latency in us, index of `TAGS`."""

    begin_us: NDArray[np.int64]
    records: NDArray[np.int64]
    p50: NDArray[np.int64]
    p99: NDArray[np.int64]
    max: NDArray[np.int64]
    tag: NDArray[np.int8]

    def rows(self, start_us: int) -> list[dict[str, Any]]:
        """Returns the rows as result.json holds them: at_s since the load's begin, latency in milliseconds."""
        at = (self.begin_us - start_us) / 1e6
        columns = (at, self.records, self.p50 / 1e3, self.p99 / 1e3, self.max / 1e3)
        names = ("at_s", "records", "p50", "p99", "max")
        return [
            {**dict(zip(names, row, strict=True)), "tag": TAGS[tag]}
            for *row, tag in zip(*(column.tolist() for column in columns), self.tag.tolist(), strict=True)
        ]


def timeline(cells: Cells, tags: NDArray[np.int8]) -> Timeline:
    """Returns the timeline; an interval with a migrating record is migrating, any other has its most frequent tag."""
    order = np.argsort(cells.interval, kind="stable")
    intervals, starts = np.unique(cells.interval[order], return_index=True)
    values = [_row(cells, tags, rows) for rows in np.split(order, starts[1:])] if len(intervals) else []
    columns = np.array(values, np.int64).reshape(-1, 5).T
    records, p50, p99, most, tag = columns
    return Timeline(intervals * INTERVAL_US, records, p50, p99, most, tag.astype(np.int8))


def _row(cells: Cells, tags: NDArray[np.int8], rows: NDArray[np.int64]) -> list[int]:
    counts = cells.count[rows]
    by_tag = np.bincount(tags[rows], weights=counts, minlength=len(TAGS))
    tag = _MIGRATING if by_tag[_MIGRATING] else int(by_tag.argmax())
    p50, p99, most = percentiles(cells.latency_us[rows], counts, (50.0, 99.0, 100.0)).tolist()
    return [int(counts.sum()), p50, p99, most, tag]


def steady_span_us(cells: Cells, tags: NDArray[np.int8]) -> tuple[int, int] | None:
    """Returns (first, last) scheduled time of the steady records, None if there are none."""
    scheduled = cells.scheduled_us[tags == _STEADY]
    return (int(scheduled.min()), int(scheduled.max())) if len(scheduled) else None


@dataclass(frozen=True)
class Peak:
    """A migration's highest latency beside that of steady windows of the same run.

    Attributes:
        peak_ms: highest latency of the records that overlap the migration.
        ratio: that over the median of the windows' maxima.
        window_s: length of the windows; the migration's own, or a third of the steady part where that is shorter.
        windows: how many there are.
    """

    peak_ms: float | None = None
    ratio: float | None = None
    window_s: float | None = None
    windows: int = 0


def peak_of(cells: Cells, tags: NDArray[np.int8], migration: Migration) -> Peak:
    """Compares a migration's highest latency with disjoint, equally long windows of the steady part."""
    own = cells.latency_us[overlaps(cells, migration)]
    if not len(own):
        return Peak()
    peak = int(highest_equivalent(own.max(keepdims=True))[0])
    span = steady_span_us(cells, tags)
    if span is None or migration.end_us is None:
        return Peak(peak / 1e3)
    first, length = span[0], span[1] - span[0] + 1
    window = max(migration.end_us - migration.begin_us, 1)
    if length // window < _WINDOWS_MIN:
        window = max(length // _WINDOWS_MIN, 1)
    steady = cells.take(tags == _STEADY)
    most = _maxima(steady, first, window, length // window)
    filled = most[most > 0]
    if not len(filled):
        return Peak(peak / 1e3)
    return Peak(peak / 1e3, peak / float(np.median(filled)), window / 1e6, len(filled))


def _maxima(cells: Cells, first_us: int, window_us: int, windows: int) -> NDArray[np.int64]:
    """Returns the highest latency of the records in flight in each window, the rule that a migration's peak follows."""
    most = np.zeros(windows, np.int64)
    begin, end = (cells.scheduled_us - first_us) // window_us, (cells.done_us - first_us) // window_us
    latency = highest_equivalent(cells.latency_us)
    for later in range(int((end - begin).max(initial=0)) + 1):
        place = begin + later
        inside = (place <= end) & (place < windows)
        np.maximum.at(most, place[inside], latency[inside])
    return most


def slow_s(line: Timeline, steady_p50_us: float | None, begin_us: int, until_us: int | None) -> float | None:
    """Returns for how long the median latency was over twice the steady one (Megaphone, section 5).

    It is the sum of the 250 ms intervals from a migration's begin to `until_us` (the next one's begin, None for the
    end of the run) whose p50 exceeds 2x the steady p50; None without steady records.
    """
    if not steady_p50_us:
        return None
    until = _FOREVER if until_us is None else until_us
    inside = (line.begin_us + INTERVAL_US > begin_us) & (line.begin_us < until)
    return float(np.count_nonzero(inside & (line.p50 > _SLOW_FACTOR * steady_p50_us)) * INTERVAL_US / 1e6)


def settled_s(line: Timeline, steady_p50_us: float | None, begin_us: int, until_us: int | None) -> float | None:
    """Returns the time from a migration's begin until the median latency is back at the steady one, and stays there.

    It is the end of the last 250 ms interval whose p50 exceeds 2x the steady p50, 0 without one; None without steady
    records, or where the last interval of all is such a one: then it was not back in time. Intervals count whose
    records were all done at `until_us`, the begin of the next migration, which would delay those in flight.
    """
    done = line.begin_us + INTERVAL_US + line.max
    inside = (line.begin_us + INTERVAL_US > begin_us) & (done <= (_FOREVER if until_us is None else until_us))
    if not steady_p50_us or not inside.any():
        return None
    slow = np.flatnonzero(line.p50[inside] > _SLOW_FACTOR * steady_p50_us)
    if len(slow) and slow[-1] == np.count_nonzero(inside) - 1:
        return None
    return float(line.begin_us[inside][slow[-1]] + INTERVAL_US - begin_us) / 1e6 if len(slow) else 0.0


def recovered_s(line: Timeline, former_peak_us: float | None, begin_us: int, until_us: int | None) -> float | None:
    """Returns the time from a migration's begin until 100 s stay within 1.1x the former peak (DRRS).

    None where there is no steady peak, or the run (or the time up to the next migration) is too short to tell.
    """
    inside = (line.begin_us + INTERVAL_US > begin_us) & (line.begin_us < (_FOREVER if until_us is None else until_us))
    if not former_peak_us or not inside.any():
        return None
    ends = line.begin_us[inside] + INTERVAL_US
    high = ends[line.max[inside] > _CALM_FACTOR * former_peak_us]
    candidates = np.concatenate(([begin_us], high))
    following = np.concatenate((high - INTERVAL_US, [ends[-1]]))
    calm = np.flatnonzero(following - candidates >= _CALM_S * 1e6)
    return float(candidates[calm[0]] - begin_us) / 1e6 if len(calm) else None


_WIDTH, _HOLD, _EPOCHS_MIN, _TOLERANCE = 3, 5, 8, 1.25
_REAL_TIME_TOLERANCE = 2.0  # medians of some 20 ms differ more than epochs of 200
RULE = (
    f"Warm-up ends with the lead-in, or later where an epoch begins from which the median time of {_WIDTH} epochs in a "
    f"row, and of the {_HOLD - 1} next such groups, is within a factor of {_TOLERANCE} of the median over the second "
    "half of all epochs before the first command. In real time the median latency of an epoch's records stands for the "
    f"time of an epoch, and the factor is {_REAL_TIME_TOLERANCE:g}."
)


@dataclass(frozen=True)
class WarmUp:
    """When warm-up ended, in wall clock us, or None and the reason."""

    end_us: int | None
    reason: str = ""


def warm_up(epochs: Sequence[dict[str, Any]], start_us: int, first_begin_us: int | None, lead_in_us: int = 0) -> WarmUp:
    """Finds the end of the warm-up by `RULE`.

    Args:
        epochs: the epoch log in order.
        start_us: begin of the load.
        first_begin_us: begin of the first migration, None without one.
        lead_in_us: load that counts as warm-up in any case.
    """
    chosen = [
        e
        for e in epochs
        if e["begin_us"] >= start_us
        and (first_begin_us is None or e["end_us"] <= first_begin_us)
        and pace_ms(e) is not None
    ]
    real_time = any("latency_ms" in e for e in epochs)
    tolerance = _REAL_TIME_TOLERANCE if real_time else _TOLERANCE
    if len(chosen) < _EPOCHS_MIN:
        return WarmUp(None, f"only {len(chosen)} epochs before the first command, {_EPOCHS_MIN} are needed to judge")
    times = np.array([pace_ms(e) for e in chosen], dtype=np.float64)
    reference = float(np.median(times[len(times) // 2 :]))
    rolling = np.median(np.lib.stride_tricks.sliding_window_view(times, _WIDTH), axis=1)
    near = (rolling <= reference * tolerance) & (rolling >= reference / tolerance)
    for first in range(len(near) - _WIDTH + 1):
        begin = chosen[first]["begin_us"] if first else start_us
        if near[first : first + _HOLD].all():
            return WarmUp(max(begin, start_us + lead_in_us))
    of = "the latency of an epoch" if real_time else "the time of an epoch"
    return WarmUp(None, f"{of} did not stay near its later median of {reference:.0f} ms")
