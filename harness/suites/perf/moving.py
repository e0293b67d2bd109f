"""Parts restart, moved and growth: what migrations cost the records, how fast state moves, and how both grow.

Restart compares Spark's restart with repartitioned state and a live rescale; growth varies keys, workers and bytes per
value, and measures memory too.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.experiment.description import Experiment
from harness.experiment.make import make_experiment
from harness.options import parse_number
from harness.suites.perf.intervals import quotient
from harness.suites.perf.part import Check, Part, PartResult, Scale, Spread, Table, interleave, migrations
from plots.metrics import at

_MIB = 1 << 20
_NATIVE = "native-repartition"
_LIVE = "megaphone-batched"  # a bound for the best live mechanism holds if it holds for one
_SIDES = (_NATIVE, _LIVE)
_BINS_PER_PAIR = 1  # at 4 M keys a bin has 15,625 entries, and an epoch's records wait for the copies of its bins
# Rounds, most where the bound is, and seconds of load that Spark's restart needs to end under it.
_LOADS = {"1M": (1, 36.0), "4M": (3, 56.0), "10M": (1, 100.0)}
_BOUND_KEYS, _BOUND = "4M", 100.0
_BOUND_MB_S = 100.0
# What growth varies, and what it shows.
_KEYS = ("1M", "4M", "10M", "40M")
_WORKERS = ("2", "4", "8")
_VALUE_BYTES = (0, 100, 1000)
_MEASURES = {
    "epoch p50": ("epoch_ms", "steady", "p50"),
    "latency p99": ("latency_ms", "steady", "p99"),
    "peak": ("latency_ms", "migrating", "max"),
}


def excess_ms(entry: Mapping[str, Any]) -> float:
    """Returns by how much a migration's highest latency exceeds the steady p99, in ms.

    It is at least the spread of the steady part: how far apart the highest latencies of its 250 ms intervals lie.
    """
    most = [row["max"] for row in entry["timeline"] if row["tag"] == "steady"]
    spread = max(most) - min(most)
    return float(max(entry["migrations"][0]["peak_ms"] - entry["latency_ms"]["steady"]["p99"], spread))


def _restart(folder: Path, scale: Scale) -> PartResult:
    """Rescales 2 -> 4 under 5,000 records/s for each number of keys, both sides interleaved; hash-count."""
    rows: list[list[str]] = []
    checks: list[Check] = []
    curves: dict[str, list[list[float]]] = {name: [] for name in _SIDES}
    for keys, (rounds, restart_s) in scale.pick(_LOADS, {"20k": (1, 12.0)}).items():
        seconds = {_NATIVE: restart_s, _LIVE: scale.pick(36.0, 12.0)}
        variants = {name: rescale_experiment(name, keys, seconds[name], scale) for name in _SIDES}
        entries = interleave(variants, rounds, folder / keys, warm=True)
        excess = {name: Spread(tuple(excess_ms(entry) for entry in found)) for name, found in entries.items()}
        for name, found in entries.items():
            curves[name].append([parse_number(keys, "keys"), excess[name].median])
            rows.append([keys, name, *_latencies(found), excess[name].text(), f"{_over(excess, name):,.0f}"])
        if keys == _BOUND_KEYS:
            sentence = f"excess latency at {keys} keys, Spark's restart over {_LIVE}"
            over = quotient(excess[_NATIVE].values, excess[_LIVE].values)
            checks.append(Check.within(sentence, over, _BOUND, at_most=False))
    table = Table(
        "Rescale from 2 to 4 workers",
        ("keys", "mechanism", "steady p99, ms", "peak, ms", "duration, s", "excess latency, ms", "Spark's over it"),
        rows,
        "Excess latency: the peak less the steady p99, at least the spread of steady 250 ms intervals. "
        f"Batched with bins per pair: {_BINS_PER_PAIR}; the restart's load is as much longer as the restart takes.",
    )
    return PartResult([table], checks, {"restart": curves})


def rescale_experiment(mechanism: str, keys: str, duration_s: float, scale: Scale) -> Experiment:
    """Returns a rescale from 2 to 4 workers under 5,000 records/s; hash-count."""
    options = {"bins_per_pair": _BINS_PER_PAIR} if mechanism == _LIVE else {}
    return make_experiment(
        mechanism=mechanism, name="perf", workload="hash", keys=keys, workers="2:4", options=options,
        rate=scale.pick("5000", "1000"), duration_s=duration_s, lead_in_s=scale.pick(10.0, 3.0),
    )  # fmt: skip


def _over(excess: Mapping[str, Spread], name: str) -> float:
    return excess[_NATIVE].median / excess[name].median


def _latencies(entries: Sequence[Mapping[str, Any]]) -> list[str]:
    steady = Spread(tuple(entry["latency_ms"]["steady"]["p99"] for entry in entries))
    peak, duration = (Spread(tuple(m[name] for m in migrations(entries))) for name in ("peak_ms", "duration_s"))
    return [steady.text(), peak.text(), duration.text(1)]


RESTART = Part("restart", "Restart against live", 20, _restart)


def _moved(folder: Path, scale: Scale) -> PartResult:
    """Moves a quarter of the state all at once and back: 40 M dense keys, and 4 M entries of hash-count."""
    keys = {"dense": scale.pick("40M", "400k"), "hash": scale.pick("4M", "20k")}
    variants = {
        workload: make_experiment(
            mechanism="megaphone-all-at-once", name="perf", workload=workload, keys=count,
            rate=scale.pick("10000", "1000"), duration_s=scale.pick(24.0, 9.0), lead_in_s=3.0,
        )
        for workload, count in keys.items()
    }  # fmt: skip
    entries = interleave(variants, scale.pick(2, 1), folder)
    moves = {name: migrations(found) for name, found in entries.items()}
    speed = {name: Spread(tuple(_mb(m) / m["duration_s"] for m in found)) for name, found in moves.items()}
    rows = [[name, keys[name], *_times(found), speed[name].text()] for name, found in moves.items()]
    columns = ("workload", "keys", "MB moved", "epochs' time, ms", "longest pull, ms", "MB/s end to end")
    sentence = "dense state moved by all-at-once, MB/s end to end"
    return PartResult(
        [Table("State moved per second", columns, rows, "Megaphone all-at-once; durability process.")],
        [Check.of(sentence, speed["dense"].values, _BOUND_MB_S, at_most=False)],
    )


def _mb(migration: Mapping[str, Any]) -> float:
    return float(migration["bytes"]) / 1e6


def _times(moves: Sequence[Mapping[str, Any]]) -> list[str]:
    size, pull = Spread(tuple(map(_mb, moves))), Spread(tuple(m["longest_pull_ms"] for m in moves))
    took = Spread(tuple(m["duration_s"] * 1e3 for m in moves))
    return [f"{size.median:,.1f}", took.text(), pull.text()]


MOVED = Part("moved", "State moved per second", 4, _moved)


def _growth(folder: Path, scale: Scale) -> PartResult:
    """Migrates a quarter of the state in batches, one thing grown at a time; 10,000 records/s."""
    tables, curves = [], {}
    measured: dict[str, dict[str, Any]] = {}  # by digest: an experiment that lies on two axes runs once
    for axis, variants in _axes(scale).items():
        missing = {x: experiment for x, experiment in variants.items() if experiment.digest() not in measured}
        found = interleave(missing, 1, folder / axis.replace(" ", "-"))
        measured |= {missing[x].digest(): entries[0] for x, entries in found.items()}
        entries = {x: measured[experiment.digest()] for x, experiment in variants.items()}
        tables.append(_growth_table(axis, variants, entries))
        curves[axis] = {
            name: [[_number(x), at(e, *path)] for x, e in entries.items()] for name, path in _MEASURES.items()
        }
        if axis == "keys":
            used = {x: entry["memory_bytes"] for x, entry in entries.items()}
            roles = list(dict.fromkeys(role for by_role in used.values() for role in by_role))
            tables.append(_memory(used, roles))
            curves["memory"] = {role: [[_number(x), used[x].get(role, 0)] for x in used] for role in roles}
    return PartResult(tables, (), curves)


def _grown(scale: Scale, **given: Any) -> Experiment:
    return make_experiment(
        mechanism="megaphone-batched", name="perf", rate=scale.pick("10000", "1000"),
        duration_s=scale.pick(21.0, 9.0), lead_in_s=3.0, **given,
    )  # fmt: skip


def _axes(scale: Scale) -> dict[str, dict[str, Experiment]]:
    """Returns the experiments of each axis, by the text of what is grown."""
    large, small = scale.pick("4M", "20k"), scale.pick("200k", "20k")
    sizes = scale.pick(_VALUE_BYTES, (0, 100))
    return {
        "keys": {x: _grown(scale, keys=x) for x in scale.pick(_KEYS, ("20k", "400k"))},
        "workers": {x: _grown(scale, keys=large, workers=x) for x in scale.pick(_WORKERS, ("2", "4"))},
        "value bytes": {str(n): _grown(scale, keys=small, workload="hash", value_bytes=n) for n in sizes},
    }


def _number(text: str) -> int:
    return 0 if text == "0" else parse_number(text, "A value of the axis")


def _growth_table(axis: str, variants: Mapping[str, Experiment], entries: Mapping[str, dict[str, Any]]) -> Table:
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


GROWTH = Part("growth", "Growth and memory", 8, _growth)
