"""Part migratable: what it costs in steady state that state can move, against a twin without bins and plans."""

from pathlib import Path

from harness.lab.measuring import measured_in_child
from harness.suites.perf.intervals import ConfidenceInterval, interval
from harness.suites.perf.part import Check, Part, PartResult, Scale, Table
from harness.suites.perf.twin.process import TurnBlock, TwinSettings, ratios

_BINS = {16: 30, 256: 120, 4096: 46, 16384: 30}  # and pairs of blocks off the backlog: most where the bound is close
_MEASURES = {  # whether it is of the backlog's blocks, and the block's field
    "latency": (False, "latency_p50_ms"),
    "epoch": (False, "epoch_ms"),
    "CPU of step and planning": (True, "cpu_ms"),
    "CPU of the JVM": (True, "jvm_cpu_ms"),
}
_CPU, _LATENCY = "CPU of step and planning", "latency"
_BOUNDS = {256: 1.05, 4096: 1.15}
_LATENCY_BOUND = 1.15


def _measure(folder: Path, scale: Scale) -> PartResult:
    """Measures live and twin in turns of 2.5 s, 10 pairs per number of bins; hash-count, 1 M keys, 10,000 records/s.

    CPU is measured on the same records as a backlog, 2,000 in each epoch, in turns of 3 epochs.
    """
    by_bins = {bins: _blocks(folder / f"bins-{bins}", bins, scale) for bins in scale.pick(tuple(_BINS), (16, 256))}
    intervals = {bins: _intervals(blocks) for bins, blocks in by_bins.items()}
    rows = [[f"{bins:,}", *(str(row[name]) for name in _MEASURES)] for bins, row in intervals.items()]
    table = Table(
        "This runtime over its twin", ("bins", *_MEASURES), rows,
        "Medians of the pairs' ratios with 95 % intervals. The twin: the same operator, store with one writer, "
        "outbox, producer and phases; hash routing that never changes, no bins, queues, plans, journals or reports per "
        "bin; durability none on both sides. "
        "Latency and epoch: of a load as it arrives. CPU: per epoch of equally many records on both sides.",
    )  # fmt: skip
    return PartResult([table, _absolute(by_bins)], _checks(intervals), {"migratable": _curves(intervals)})


def _intervals(blocks: list[TurnBlock]) -> dict[str, ConfidenceInterval]:
    return {
        name: interval(ratios([b for b in blocks if b.backlog == backlog], field))
        for name, (backlog, field) in _MEASURES.items()
    }


def _blocks(folder: Path, bins: int, scale: Scale) -> list[TurnBlock]:
    settings = TwinSettings(
        bins, scale.pick(10, 3), scale.pick(2.5, 1.0), scale.pick(1_000_000, 50_000), scale.pick(10_000, 2_000),
        backlog_pairs=scale.pick(_BINS[bins], 6),
    )  # fmt: skip
    measured = measured_in_child("harness.suites.perf.twin.process", folder, settings)
    return [TurnBlock(**block) for block in measured]


def _checks(intervals: dict[int, dict[str, ConfidenceInterval]]) -> list[Check]:
    out = []
    for bins, bound in _BOUNDS.items():
        if bins in intervals:
            sentence = f"CPU of step and planning with {bins:,} bins over the twin's"
            out.append(Check.within(sentence, intervals[bins][_CPU], bound, at_most=True))
    if 256 in intervals:
        sentence = "latency with 256 bins over the twin's"
        out.append(Check.within(sentence, intervals[256][_LATENCY], _LATENCY_BOUND, at_most=True))
    return out


def _absolute(by_bins: dict[int, list[TurnBlock]]) -> Table:
    rows = []
    for bins, blocks in by_bins.items():
        for side in ("live", "twin"):
            own = [b for b in blocks if b.side == side]
            shown = [
                interval([getattr(b, field) for b in own if b.backlog == backlog]).median
                for backlog, field in _ABSOLUTE.values()
            ]
            rows.append([f"{bins:,}", side, *(f"{value:,.1f}" for value in shown)])
    return Table("Per epoch, medians of the blocks", ("bins", "side", *_ABSOLUTE), rows)


_ABSOLUTE = {
    "latency p50, ms": (False, "latency_p50_ms"),
    "epoch, ms": (False, "epoch_ms"),
    "step CPU, ms": (True, "step_cpu_ms"),
    "planning CPU, ms": (True, "plan_cpu_ms"),
    "JVM CPU, ms": (True, "jvm_cpu_ms"),
}


def _curves(intervals: dict[int, dict[str, ConfidenceInterval]]) -> dict[str, list[list[float]]]:
    return {
        name: [[bins, r[name].median, r[name].low, r[name].high] for bins, r in intervals.items()] for name in _MEASURES
    }


PART = Part("The cost of being migratable", 9, _measure)
