"""Part cluster: what a cluster of hosts costs and does, beside the same number of workers in one process.

Epochs are compared with local mode, and a rescale onto more hosts with Spark's own restart, interleaved. An executor
and a host are lost under load, for several sizes of state. Part pulls has pulls alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from harness.experiment.make import make_experiment
from harness.lab.hosts.isolated import can_isolate
from harness.lab.measuring import measured_in_child
from harness.suites.perf.lost_host import Loss, Settings
from harness.suites.perf.moving import excess_ms, rescale_experiment
from harness.suites.perf.part import (
    STEADY_MEASURES,
    Check,
    Part,
    PartResult,
    Scale,
    Spread,
    Table,
    interleave,
    migrations,
    ratio,
    spread,
)  # fmt: skip
from plots.metrics import at

_HOSTS = 2
_NATIVE, _LIVE = "native-repartition", "megaphone-batched"
_RESCALED = {_NATIVE: 56.0, _LIVE: 36.0}  # seconds of load that they need
_PEAK_BOUND, _EXCESS_BOUND = 1.25, 50.0
_EPOCH_BOUND, _STAYED_BOUND = 1.15, 0.999
_LOST_KEYS = (100_000, 1_000_000, 4_000_000)
_STEADY_BOUND_S, _BOUND_KEYS = 10.0, 1_000_000


def _measure(folder: Path, scale: Scale) -> PartResult:
    """Measures epochs, a rescale and the loss of a host."""
    measures = {"epochs": _epochs, "rescale": _rescale, "lost": _lost}
    found = [measure(folder / name, scale) for name, measure in measures.items()]
    curves = {name: lines for part in found for name, lines in part.curves.items()}
    return PartResult([t for part in found for t in part.tables], [c for part in found for c in part.checks], curves)


HOSTS = Part("cluster", "Hosts of a cluster", 30, _measure)


def _epochs(folder: Path, scale: Scale) -> PartResult:
    """Runs the same steady load in local mode and on the cluster; hash-count, 1 M keys, 4 workers."""
    local = make_experiment(
        mechanism="none", name="perf", workload="hash", keys=scale.pick("1M", "20k"), migration="none", workers="4",
        rate=scale.pick("5000", "1000"), duration_s=scale.pick(25.0, 8.0), lead_in_s=scale.pick(10.0, 3.0),
    )  # fmt: skip
    variants = {"local": local, "cluster": replace(local, cluster=_HOSTS)}
    entries = interleave(variants, scale.pick(3, 1), folder, warm=True)
    rows = [
        [name, *(spread(entries[side], *path).text() for side in variants),
         str(ratio(entries["cluster"], entries["local"], *path))]
        for name, path in STEADY_MEASURES.items()
    ]  # fmt: skip
    stayed = min(entry["hosts"]["stayed_share"] for entry in entries["cluster"])
    note = f"{_HOSTS} hosts, {local.workers} workers, {local.keys:,} keys, {local.rate:,} records/s."
    table = Table("Steady state on a cluster", ("measure", "local, ms", "cluster, ms", "ratio"), rows, note)
    epoch = ratio(entries["cluster"], entries["local"], *STEADY_MEASURES["epoch p50"])
    return PartResult(
        [table],
        [
            Check("steady epoch, cluster over local mode", epoch.median, _EPOCH_BOUND, at_most=True),
            Check("share of epochs in which a worker ran on its host", stayed, _STAYED_BOUND, at_most=False),
        ],
    )


def _rescale(folder: Path, scale: Scale) -> PartResult:
    """Rescales from 2 workers on as many hosts to 4, live and by Spark's own restart with repartitioned state."""
    keys, hosts = scale.pick("4M", "20k"), scale.pick(4, 2)
    variants = {
        name: replace(rescale_experiment(name, keys, scale.pick(seconds, 12.0), scale), cluster=hosts)
        for name, seconds in _RESCALED.items()
    }
    entries = interleave(variants, scale.pick(3, 1), folder, warm=True)
    excess = {name: Spread(tuple(map(excess_ms, found))) for name, found in entries.items()}
    peak = {name: Spread(tuple(_peak_ratios(found))) for name, found in entries.items()}
    rows = [[name, *_moved(found), peak[name].text(2), excess[name].text()] for name, found in entries.items()]
    columns = ("mechanism", "MB from other hosts", "MB/s of pulls", "migration, ms", "peak ratio", "excess latency, ms")
    note = f"{hosts} hosts, {keys} keys of hash-count, workers 2 to 4."
    live = excess[_LIVE].median
    return PartResult(
        [Table("Rescale onto more hosts", columns, rows, note)],
        [
            Check(f"peak ratio of {_LIVE} at {keys} keys on a cluster", peak[_LIVE].median, _PEAK_BOUND, at_most=True),
            Check(f"excess latency at {keys} keys on a cluster, Spark's restart over {_LIVE}",
                  excess[_NATIVE].median / live, _EXCESS_BOUND, at_most=False),
        ],
    )  # fmt: skip


def _peak_ratios(entries: Sequence[dict[str, Any]]) -> list[float]:
    """Returns the peak ratio of each migration, infinite where there was no steady part to compare with."""
    return [float("inf") if one["peak_ratio"] is None else one["peak_ratio"] for one in migrations(entries)]


def _pull_mb_s(entry: Mapping[str, Any]) -> float:
    """Returns the bytes that a run's workers pulled from other hosts over the time for which they pulled, in MB/s."""
    pulls = entry["hosts"]["network"]
    ms = sum(pull["ms"] for pull in pulls)
    return float(sum(pull["bytes"] for pull in pulls)) / 1e3 / ms if ms else 0.0


def _moved(entries: Sequence[dict[str, Any]]) -> list[str]:
    size = Spread(tuple(float(at(entry, "hosts", "network_bytes") or 0) / 1e6 for entry in entries))
    took = Spread(tuple(one["duration_s"] * 1e3 for one in migrations(entries)))
    return [size.text(1), Spread(tuple(map(_pull_mb_s, entries))).text(), took.text()]


def _lost(folder: Path, scale: Scale) -> PartResult:
    """Loses the executor of one of two hosts, or the host, under load, for several sizes of hash-count's state."""
    found: list[Loss] = []
    for what, keys in product(("executor", "host"), scale.pick(_LOST_KEYS, (20_000,))):
        settings = Settings(what, keys, scale.pick(2_000, 500), scale.pick(40.0, 25.0))
        measured = measured_in_child("harness.suites.perf.lost_host", folder / f"{what}-{keys}", settings)
        found += [Loss(**one) for one in measured]
    rows = [
        [one.what, f"{one.keys:,}", f"{one.state_bytes / 1e6:,.1f}", f"{one.recover_ms:,.0f}", f"{one.gap_s:.1f}",
         "-" if one.steady_s is None else f"{one.steady_s:.1f}"]
        for one in found
    ]  # fmt: skip
    how = "ends without a word, as by a cut of its power" if can_isolate() else "has its processes killed"
    columns = ("lost", "keys", "state, MB", "longest rebuild, ms", "until an epoch ends, s", "until steady, s")
    table = Table("A loss under load", columns, rows, f"One of {_HOSTS} hosts, which {how}, or its executor.")
    bounded = [one for one in found if (one.what, one.keys) == ("executor", _BOUND_KEYS)]
    checks = [
        Check("seconds from the loss of an executor to steady state, 1 M keys", one.steady_s or float("inf"),
              _STEADY_BOUND_S, at_most=True)
        for one in bounded
    ]  # fmt: skip
    points: dict[str, list[list[float]]] = {}
    for one in found:
        for name, ms in (("until an epoch ends", one.gap_s * 1e3), ("rebuild", one.recover_ms)):
            points.setdefault(f"{one.what}: {name}", []).append([one.state_bytes / 1e6, ms])
    return PartResult([table], checks, {"MB of state": points})
