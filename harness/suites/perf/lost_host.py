"""How long a query takes to go on when it loses a host or an executor.

`python -m harness.suites.perf.lost_host FOLDER` is the process of the measurement: it obeys FOLDER/asked.json.
"""

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from generators.clock import now_us
from harness.experiment.make import make_experiment
from harness.lab.bringup import bring_up, open_session
from harness.lab.hosts.cluster import cluster
from harness.lab.measuring import measure_here
from harness.lab.waiting import wait_for
from harness.run.load import Load, schedule
from harness.run.pipeline import start_query
from impls.driver.epochs import EpochRecord

_HOSTS, _WORKERS = 2, 4
_READY_DEADLINE_S = 300.0
_DRAIN_DEADLINE_S = 180.0
_CALM_EPOCHS, _CALM_FACTOR = 3, 2.0  # as in harness.measure.migrations
_WARM_SHARE = 1 / 6  # of the load before the loss, in which epochs are long because the JVM is cold


@dataclass(frozen=True)
class Settings:
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


def judged(records: Sequence[EpochRecord], asked: Settings, begin_us: int, lost_us: int) -> Loss:
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


def _measure(folder: Path, settings: Settings) -> list[Loss]:
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
        with Load(folder, services.broker.bootstrap, load, resume=False) as generator:
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


if __name__ == "__main__":
    sys.exit(measure_here(Path(sys.argv[1]), Settings, _measure))
