"""Part processor: the same StatefulProcessor by Spark's own transformWithState and by this runtime."""

from pathlib import Path

from harness.lab.measuring import measured_in_child
from harness.suites.perf.part import Check, Part, PartResult, Scale, Spread, Table
from harness.suites.perf.processor.process import Block, ProcessorSettings
from harness.suites.perf.processor.sides import SIDES

_THROUGHPUT_BOUND, _LATENCY_BOUND = 1.5, 1.0
_MEASURES = {"records/s off a backlog": "throughput", "latency p50, ms": "p50_ms", "latency p99, ms": "p99_ms"}
_DEADLINE_S = 2_400.0  # of which most goes to the state: Spark takes some round trips per key


def _measure(folder: Path, scale: Scale) -> PartResult:
    """Measures both sides in turns: a backlog, then a steady load; a counting processor over rows, 1 M keys."""
    settings = ProcessorSettings(
        keys=scale.pick(1_000_000, 2_000), rounds=scale.pick(3, 1), epochs=scale.pick(6, 3),
        epoch_records=scale.pick(10_000, 1_000), rate=scale.pick(1_500, 200), seconds=scale.pick(20.0, 4.0),
    )  # fmt: skip
    found = measured_in_child("harness.suites.perf.processor.process", folder, settings, deadline_s=_DEADLINE_S)
    return findings([Block(**block) for block in found], settings)


def findings(blocks: list[Block], settings: ProcessorSettings) -> PartResult:
    """Returns the table and the checks of both sides' blocks."""
    ratios = {name: _ratio(blocks, field) for name, field in _MEASURES.items()}
    rows = [
        [name, *(_of(blocks, side, field).text() for side in SIDES), str(ratios[name])]
        for name, field in _MEASURES.items()
    ]
    table = Table(
        "The same processor on both", ("measure", "Spark's own, rows", "this runtime", "ratio"), rows,
        f"A running count that sends a row per record; {settings.keys:,} keys, {settings.workers} partitions or "
        f"workers. The backlog: epochs of {settings.epoch_records:,} records, without the first one. Latencies: "
        f"{settings.rate:,} records/s, up to the broker's time of each result.",
    )  # fmt: skip
    return PartResult([table], _checks(ratios))


def _of(blocks: list[Block], side: str, field: str) -> Spread:
    return Spread(tuple(float(getattr(block, field)) for block in blocks if block.side == side))


def _ratio(blocks: list[Block], field: str) -> Spread:
    live, spark = (sorted((b for b in blocks if b.side == side), key=lambda b: b.round) for side in ("live", "Spark"))
    return Spread(tuple(getattr(a, field) / getattr(b, field) for a, b in zip(live, spark, strict=True)))


def _checks(ratios: dict[str, Spread]) -> list[Check]:
    throughput, latency = ratios["records/s off a backlog"].median, ratios["latency p99, ms"].median
    return [
        Check("throughput of a processor, this runtime over Spark's own", throughput, _THROUGHPUT_BOUND, at_most=False),
        Check("latency p99 of a processor, this runtime over Spark's own", latency, _LATENCY_BOUND, at_most=True),
    ]


PART = Part("processor", "A StatefulProcessor on both", 15, _measure)
