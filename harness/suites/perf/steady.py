"""Part steady: the same count on Spark's own state and on this runtime, with nothing moving."""

from pathlib import Path

from harness.experiment.make import make_experiment
from harness.suites.perf.interleave import STEADY_MEASURES, interleave, ratio, values
from harness.suites.perf.part import Check, Part, PartResult, Scale, Spread, Table

__all__ = ["PART", "measure"]

_SIDES = {"Spark": "native-restart", "live": "none"}
_BOUND = 0.85


def measure(folder: Path, scale: Scale) -> PartResult:
    """Runs both sides interleaved, at 20,000 records/s and 1 M keys, and compares epochs and latencies."""
    variants = {
        side: make_experiment(
            mechanism=mechanism, name="perf", workload="hash", keys=scale.pick("1M", "20k"), migration="none",
            rate=scale.pick("20000", "2000"), duration_s=scale.pick(25.0, 8.0), lead_in_s=scale.pick(5.0, 3.0),
        )
        for side, mechanism in _SIDES.items()
    }  # fmt: skip
    entries = interleave(variants, scale.pick(3, 1), folder, warm=True)
    rows = []
    for name, path in STEADY_MEASURES.items():
        found = ratio(entries["live"], entries["Spark"], *path)
        rows.append([name, *(Spread(values(entries[side], *path)).text() for side in _SIDES), str(found)])
    epoch = ratio(entries["live"], entries["Spark"], *STEADY_MEASURES["epoch p50"])
    table = Table(
        "Steady state",
        ("measure", "Spark's own count, ms", "this runtime, ms", "ratio"),
        rows,
        f"hash-count, {next(iter(variants.values())).keys:,} keys, {next(iter(variants.values())).rate:,} records/s.",
    )
    return PartResult([table], [Check("steady epoch, this runtime over Spark", epoch.median, _BOUND, at_most=True)])


PART = Part("steady", "Steady state against Spark's own", 6, measure)
