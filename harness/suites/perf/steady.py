"""Part steady: the same count on Spark's own state and on this runtime, with nothing moving, at one rate."""

from pathlib import Path

from harness.experiment.description import Experiment
from harness.experiment.make import make_experiment
from harness.suites.perf.part import STEADY_MEASURES, Check, Part, PartResult, Scale, Table, interleave, ratio, spread

SIDES = {"Spark": "native-restart", "live": "none"}
_BOUND = 0.85


def steady_experiment(side: str, scale: Scale, rate: int, duration_s: float) -> Experiment:
    """Returns the count of a side under a rate, in records/s, that nothing moves meanwhile; hash-count, 1 M keys."""
    return make_experiment(
        mechanism=SIDES[side], name="perf", workload="hash", keys=scale.pick("1M", "20k"), migration="none",
        rate=str(rate), duration_s=duration_s, lead_in_s=scale.pick(5.0, 3.0),
    )  # fmt: skip


def _measure(folder: Path, scale: Scale) -> PartResult:
    """Runs both sides interleaved, at 20,000 records/s and 1 M keys, and compares epochs and latencies."""
    rate, seconds = scale.pick(20_000, 2_000), scale.pick(25.0, 8.0)
    variants = {side: steady_experiment(side, scale, rate, seconds) for side in SIDES}
    entries = interleave(variants, scale.pick(3, 1), folder, warm=True)
    rows = []
    for name, path in STEADY_MEASURES.items():
        found = ratio(entries["live"], entries["Spark"], *path)
        rows.append([name, *(spread(entries[side], *path).text() for side in SIDES), str(found)])
    epoch = ratio(entries["live"], entries["Spark"], *STEADY_MEASURES["epoch p50"])
    table = Table(
        "Steady state",
        ("measure", "Spark's own count, ms", "this runtime, ms", "ratio"),
        rows,
        f"hash-count, {variants['live'].keys:,} keys, {rate:,} records/s.",
    )
    return PartResult([table], [Check.of("steady epoch, this runtime over Spark", epoch.values, _BOUND, at_most=True)])


PART = Part("Steady state against Spark's own", 6, _measure)
