"""Part restart: what Spark's restart with repartitioned state costs the records, and what a live rescale does."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.experiment.description import Experiment
from harness.experiment.make import make_experiment
from harness.options import parse_number
from harness.suites.perf.intervals import quotient
from harness.suites.perf.part import Check, Part, PartResult, Scale, Spread, Table, interleave, migrations

_NATIVE = "native-repartition"
_LIVE = "megaphone-batched"  # a bound for the best live mechanism holds if it holds for one
_SIDES = (_NATIVE, _LIVE)
_BINS_PER_PAIR = 1  # at 4 M keys a bin has 15,625 entries, and an epoch's records wait for the copies of its bins
# Rounds, most where the bound is, and seconds of load that Spark's restart needs to end under it.
_LOADS = {"1M": (1, 36.0), "4M": (3, 56.0), "10M": (1, 100.0)}
_BOUND_KEYS, _BOUND = "4M", 100.0


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
        variants = {name: _experiment(name, keys, seconds[name], scale) for name in _SIDES}
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


def _experiment(mechanism: str, keys: str, duration_s: float, scale: Scale) -> Experiment:
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


PART = Part("Restart against live", 20, _restart)
