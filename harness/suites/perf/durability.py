"""Part durability: the same steady load with the changelog off, on, and flushed to disk, interleaved."""

from dataclasses import replace
from pathlib import Path

from harness.experiment.make import make_experiment
from harness.suites.perf.part import STEADY_MEASURES, Check, Part, PartResult, Scale, Table, interleave, ratio, spread

_LEVELS = ("none", "process", "host")
_BOUND = 1.10


def _measure(folder: Path, scale: Scale) -> PartResult:
    plain = make_experiment(
        mechanism="none", name="perf", workload="dense", keys=scale.pick("4M", "20k"), migration="none",
        rate=scale.pick("10000", "1000"), duration_s=scale.pick(30.0, 8.0),
    )  # fmt: skip
    entries = interleave({level: replace(plain, durability=level) for level in _LEVELS}, scale.pick(5, 1), folder)
    rows = [
        [name, spread(entries["none"], *path).text(),
         *(str(ratio(entries[level], entries["none"], *path)) for level in _LEVELS[1:])]
        for name, path in STEADY_MEASURES.items()
    ]  # fmt: skip
    table = Table("Changelog and snapshots", ("measure", "none, ms", "process / none", "host / none"), rows)
    epoch = ratio(entries["process"], entries["none"], *STEADY_MEASURES["epoch p50"])
    return PartResult([table], [Check.of("steady epoch, process over none", epoch.values, _BOUND, at_most=True)])


PART = Part("What durability costs", 14, _measure)
