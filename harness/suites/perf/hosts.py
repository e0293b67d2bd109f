"""Part cluster: what a cluster of hosts costs and does, beside the same number of workers in one process.

Epochs are compared with local mode, and a rescale onto more hosts with Spark's own restart, interleaved. An executor
and a host are lost under load, for several sizes of state. Part pulls has pulls alone.

`python -m harness.suites.perf.hosts FOLDER` is the process of the measurement: it obeys FOLDER/asked.json.
"""

import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from generators.clock import now_us
from harness.experiment.make import make_experiment
from harness.lab.bringup import bring_up, open_session
from harness.lab.hosts.cluster import cluster
from harness.lab.hosts.isolated import can_isolate
from harness.lab.measuring import measure_here, measured_in_child
from harness.lab.waiting import wait_for
from harness.run.load import LoadGenerator, schedule
from harness.run.pipeline import start_query
from harness.suites.perf.intervals import quotient
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
)
from impls.driver.epochs import EpochRecord
from plots.metrics import at

_HOSTS = 2
_WORKERS = 4
_READY_DEADLINE_S = 300.0
_DRAIN_DEADLINE_S = 180.0
_CALM_EPOCHS, _CALM_FACTOR = 3, 2.0  # as in harness.measure.migrations
_WARM_SHARE = 1 / 6  # of the load before the loss, in which epochs are long because the JVM is cold


@dataclass(frozen=True)
class LossSettings:
    """A steady load of `seconds` at `rate` records per second on `keys` keys.

    At a third of it `what` ends, a host or an executor.
    """

    what: str
    keys: int
    rate: int
    seconds: float


@dataclass(frozen=True)
class Loss:
    """What a loss cost.

    Attributes:
        what: host or executor.
        keys: number of keys.
        state_bytes: state of all workers just before.
        recover_ms: longest time for which a worker was rebuilt in an epoch.
        gap_s: from the loss to the end of the next epoch.
        steady_s: from the loss to the begin of three epochs in a row as long as twice those before, at most; None where
            that was not seen.
    """

    what: str
    keys: int
    state_bytes: int
    recover_ms: float
    gap_s: float
    steady_s: float | None


def judged(records: Sequence[EpochRecord], asked: LossSettings, begin_us: int, lost_us: int) -> Loss:
    """Returns what a loss at a wall clock time cost, of the epochs of a load that began at `begin_us`."""
    warm_us = begin_us + round((lost_us - begin_us) * _WARM_SHARE)
    before = [record for record in records if warm_us <= record.begin_us and record.end_us <= lost_us]
    behind = [record for record in records if record.end_us > lost_us]
    usual_ms = float(np.median([_ms(record) for record in before]))
    calm = [_ms(record) <= _CALM_FACTOR * usual_ms and not _rebuilt(record) for record in behind]
    steady = [i for i in range(len(calm) - _CALM_EPOCHS + 1) if all(calm[i : i + _CALM_EPOCHS])]
    return Loss(
        what=asked.what,
        keys=asked.keys,
        state_bytes=before[-1].state_bytes,
        recover_ms=max((report.ms.get("recover", 0.0) for record in behind for report in record.reports), default=0.0),
        gap_s=(behind[0].end_us - lost_us) / 1e6,
        steady_s=max(behind[steady[0]].begin_us - lost_us, 0) / 1e6 if steady else None,
    )


def _ms(record: EpochRecord) -> float:
    return (record.end_us - record.begin_us) / 1e3


def _applied(records: Sequence[EpochRecord]) -> int:
    return sum(report.records for record in list(records) for report in record.reports)


def _rebuilt(record: EpochRecord) -> bool:
    return any(report.recovered for report in record.reports)


def _measure(folder: Path, settings: LossSettings) -> list[Loss]:
    """Runs the load on two hosts, of which one alone has a slot for every worker, and ends one."""
    experiment = make_experiment(
        mechanism="none", name="lost-host", workload="hash", keys=settings.keys, rate=settings.rate, migration="none",
        workers=_WORKERS, lead_in_s=0.0, duration_s=settings.seconds,
    )  # fmt: skip
    (run,) = experiment.runs()
    records: list[EpochRecord] = []
    with ExitStack() as stack:
        hosts = stack.enter_context(cluster(_HOSTS, folder=folder / "cluster", cores=_WORKERS))
        topics = {"in": experiment.input_partitions, "out": experiment.result_partitions}
        session = partial(open_session, experiment.name, _WORKERS, master=hosts.master)
        services = stack.enter_context(bring_up(folder, session=session, topics=topics, host=hosts.driver))
        query = stack.enter_context(
            start_query(
                services.spark, run, folder, services.broker.bootstrap, ("in", "out"), on_epoch=records.append,
                on_event=lambda *_: None, state=hosts.state_dir,
            )
        )  # fmt: skip
        wait_for(lambda: bool(records) or query.failed is not None, "the first epoch", _READY_DEADLINE_S)
        load = schedule(folder, experiment, "in")
        with LoadGenerator(folder, services.broker.bootstrap, load, resume=False) as generator:
            lost_us = round(load["start_us"] + settings.seconds / 3 * 1e6)
            wait_for(lambda: now_us() >= lost_us, "a third of the load", settings.seconds)
            lost_us = now_us()
            (hosts.kill_host if settings.what == "host" else hosts.kill_executor)(hosts.hosts[-1])
            wait_for(generator.finished, "the load", settings.seconds + _DRAIN_DEADLINE_S)
        wait_for(
            lambda: _applied(records) >= load["records"] or query.failed is not None, "the last record",
            _DRAIN_DEADLINE_S,
        )  # fmt: skip
        if query.failed is not None:
            raise query.failed
    return [judged(records, settings, load["start_us"], lost_us)]


_NATIVE, _LIVE = "native-repartition", "megaphone-batched"
_RESCALED = {_NATIVE: 56.0, _LIVE: 36.0}  # seconds of load that they need
_PEAK_BOUND, _EXCESS_BOUND = 1.25, 50.0
_EPOCH_BOUND, _STAYED_BOUND = 1.15, 0.999
_LOST_KEYS = (100_000, 1_000_000, 4_000_000)
_STEADY_BOUND_S, _BOUND_KEYS = 10.0, 1_000_000


def _measure_part(folder: Path, scale: Scale) -> PartResult:
    """Measures epochs, a rescale and the loss of a host."""
    measures = {"epochs": _epochs, "rescale": _rescale, "lost": _lost}
    found = [measure(folder / name, scale) for name, measure in measures.items()]
    curves = {name: lines for part in found for name, lines in part.curves.items()}
    return PartResult([t for part in found for t in part.tables], [c for part in found for c in part.checks], curves)


HOSTS = Part("cluster", "Hosts of a cluster", 30, _measure_part)


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
            Check.of("steady epoch, cluster over local mode", epoch.values, _EPOCH_BOUND, at_most=True),
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
    return PartResult(
        [Table("Rescale onto more hosts", columns, rows, note)],
        [
            Check.of(f"peak ratio of {_LIVE} at {keys} keys on a cluster", peak[_LIVE].values, _PEAK_BOUND,
                     at_most=True),
            Check.within(f"excess latency at {keys} keys on a cluster, Spark's restart over {_LIVE}",
                         quotient(excess[_NATIVE].values, excess[_LIVE].values), _EXCESS_BOUND, at_most=False),
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
    losses: list[Loss] = []
    for what, keys in product(("executor", "host"), scale.pick(_LOST_KEYS, (20_000,))):
        settings = LossSettings(what, keys, scale.pick(2_000, 500), scale.pick(40.0, 25.0))
        measured = measured_in_child("harness.suites.perf.hosts", folder / f"{what}-{keys}", settings)
        losses += [Loss(**loss) for loss in measured]
    rows = [
        [loss.what, f"{loss.keys:,}", f"{loss.state_bytes / 1e6:,.1f}", f"{loss.recover_ms:,.0f}", f"{loss.gap_s:.1f}",
         "-" if loss.steady_s is None else f"{loss.steady_s:.1f}"]
        for loss in losses
    ]  # fmt: skip
    how = "ends without a word, as by a cut of its power" if can_isolate() else "has its processes killed"
    columns = ("lost", "keys", "state, MB", "longest rebuild, ms", "until an epoch ends, s", "until steady, s")
    table = Table("A loss under load", columns, rows, f"One of {_HOSTS} hosts, which {how}, or its executor.")
    bounded = [loss for loss in losses if (loss.what, loss.keys) == ("executor", _BOUND_KEYS)]
    checks = [
        Check("seconds from the loss of an executor to steady state, 1 M keys", loss.steady_s or float("inf"),
              _STEADY_BOUND_S, at_most=True)
        for loss in bounded
    ]  # fmt: skip
    points: dict[str, list[list[float]]] = {}
    for loss in losses:
        for name, ms in (("until an epoch ends", loss.gap_s * 1e3), ("rebuild", loss.recover_ms)):
            points.setdefault(f"{loss.what}: {name}", []).append([loss.state_bytes / 1e6, ms])
    return PartResult([table], checks, {"MB of state": points})


if __name__ == "__main__":
    sys.exit(measure_here(Path(sys.argv[1]), LossSettings, _measure))
