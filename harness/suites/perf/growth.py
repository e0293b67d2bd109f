"""Part growth: epoch, peak and memory against keys, workers and bytes per value."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.experiment.description import Experiment
from harness.experiment.make import make_experiment
from harness.options import parse_number
from harness.suites.perf.part import Part, PartResult, Scale, Table, interleave
from plots.metrics import at

__all__ = ["PART"]

_MIB = 1 << 20
_KEYS = ("1M", "4M", "10M", "40M")
_WORKERS = ("2", "4", "8")
_VALUE_BYTES = (0, 100, 1000)


def _measure(folder: Path, scale: Scale) -> PartResult:
    """Migrates a quarter of the state in batches, one thing grown at a time; 10,000 records/s."""
    tables, curves = [], {}
    measured: dict[str, dict[str, Any]] = {}  # by digest: an experiment that lies on two axes runs once
    for axis, variants in _axes(scale).items():
        missing = {x: experiment for x, experiment in variants.items() if experiment.digest() not in measured}
        found = interleave(missing, 1, folder / axis.replace(" ", "-"))
        measured |= {missing[x].digest(): entries[0] for x, entries in found.items()}
        entries = {x: measured[experiment.digest()] for x, experiment in variants.items()}
        tables.append(_times(axis, variants, entries))
        curves[axis] = {
            name: [[_number(x), at(e, *path)] for x, e in entries.items()] for name, path in _MEASURES.items()
        }
        if axis == "keys":
            used = {x: entry["memory_bytes"] for x, entry in entries.items()}
            roles = list(dict.fromkeys(role for by_role in used.values() for role in by_role))
            tables.append(_memory(used, roles))
            curves["memory"] = {role: [[_number(x), used[x].get(role, 0)] for x in used] for role in roles}
    return PartResult(tables, (), curves)


_MEASURES = {
    "epoch p50": ("epoch_ms", "steady", "p50"),
    "latency p99": ("latency_ms", "steady", "p99"),
    "peak": ("latency_ms", "migrating", "max"),
}


def _experiment(scale: Scale, **given: Any) -> Experiment:
    return make_experiment(
        mechanism="megaphone-batched", name="perf", rate=scale.pick("10000", "1000"),
        duration_s=scale.pick(21.0, 9.0), lead_in_s=3.0, **given,
    )  # fmt: skip


def _axes(scale: Scale) -> dict[str, dict[str, Experiment]]:
    """Returns the experiments of each axis, by the text of what is grown."""
    one, small = scale.pick("4M", "20k"), scale.pick("200k", "20k")
    sizes = scale.pick(_VALUE_BYTES, (0, 100))
    return {
        "keys": {x: _experiment(scale, keys=x) for x in scale.pick(_KEYS, ("20k", "400k"))},
        "workers": {x: _experiment(scale, keys=one, workers=x) for x in scale.pick(_WORKERS, ("2", "4"))},
        "value bytes": {str(n): _experiment(scale, keys=small, workload="hash", value_bytes=n) for n in sizes},
    }


def _number(text: str) -> int:
    return 0 if text == "0" else parse_number(text, "A value of the axis")


def _times(axis: str, variants: Mapping[str, Experiment], entries: Mapping[str, dict[str, Any]]) -> Table:
    rows = []
    for x, entry in entries.items():
        state = sum(m["bytes"] for m in entry["migrations"][:1])
        shown = [at(entry, *path) for path in _MEASURES.values()]
        rows.append([x, *("-" if v is None else f"{v:,.0f}" for v in shown), f"{state / _MIB:,.1f}"])
    one = next(iter(variants.values()))
    note = f"{one.workload}, {'-'.join(one.mechanisms)}, {one.rate:,} records/s; one run each."
    columns = (axis, *(f"{name}, ms" for name in _MEASURES), "MiB moved")
    return Table(f"Growth with {axis}", columns, rows, note)


def _memory(used: Mapping[str, Mapping[str, int]], roles: Sequence[str]) -> Table:
    rows = [[x, *(f"{by_role.get(role, 0) / _MIB:,.0f}" for role in roles)] for x, by_role in used.items()]
    columns = ("keys", *(f"{role}, MiB" for role in roles))
    return Table("Memory by role", columns, rows, "Highest resident set of each role.")


PART = Part("growth", "Growth and memory", 8, _measure)
