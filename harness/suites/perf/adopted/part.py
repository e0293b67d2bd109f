"""Part adopted: how long Spark's own state takes to be taken over, and what the rescale that follows costs."""

from pathlib import Path

from harness.lab.measuring import measured_in_child
from harness.suites.perf.adopted.process import AdoptedSettings, Adoption
from harness.suites.perf.part import Check, Part, PartResult, Scale, Spread, Table

_SECONDS_BOUND, _PEAK_BOUND = 30.0, 1.25
_ROUNDS = 3
_MEASURES = {
    "adoption, s": ("seconds", 1),
    "latency p50 before, ms": ("p50_ms", 0),
    "latency p99 before, ms": ("p99_ms", 0),
    "peak of the rescale, ms": ("peak_ms", 0),
    "peak ratio": ("peak_ratio", 2),
}


def _measure(folder: Path, scale: Scale) -> PartResult:
    """Adopts the state of Spark's own count, 1 M keys, and rescales the query that goes on, 2 to 4 workers."""
    settings = AdoptedSettings(
        keys=scale.pick(1_000_000, 2_000), rate=scale.pick(5_000, 500), workers=2, goal=4,
        lead_in_s=scale.pick(8.0, 4.0), steady_s=scale.pick(15.0, 5.0), after_s=scale.pick(15.0, 6.0),
    )  # fmt: skip
    found = [
        measured_in_child("harness.suites.perf.adopted.process", folder / f"r{number}", settings)
        for number in range(scale.pick(_ROUNDS, 1))
    ]
    return findings([Adoption(**fields) for (fields,) in found], settings)


def findings(rounds: list[Adoption], settings: AdoptedSettings) -> PartResult:
    """Returns the table and the checks of some rounds."""
    spreads = {name: Spread(tuple(getattr(one, field) for one in rounds)) for name, (field, _) in _MEASURES.items()}
    rows = [[name, spreads[name].text(digits)] for name, (_, digits) in _MEASURES.items()]
    busy = sum(one.machine == "busy" for one in rounds)
    table = Table(
        "A query of Spark's own, adopted and rescaled", ("measure", "median (range)"), rows,
        f"`groupBy().agg(count)`, {settings.keys:,} keys, {settings.rate:,} records/s, {settings.workers} to "
        f"{settings.goal} workers, megaphone-batched; {len(rounds)} rounds, {busy} of them on a busy machine. All "
        f"{sum(one.results for one in rounds):,} results were checked.",
    )  # fmt: skip
    return PartResult([table], [
        Check("seconds to adopt Spark's own state", spreads["adoption, s"].median, _SECONDS_BOUND, at_most=True),
        Check("peak ratio of the rescale behind it", spreads["peak ratio"].median, _PEAK_BOUND, at_most=True),
    ])  # fmt: skip


PART = Part("adopted", "Spark's own state taken over", 6, _measure)
