"""The session of a run: as many tasks at once as its query needs, and the settings of its mode."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from harness.experiment.description import Experiment, Run
from harness.lab.bringup import KEEP_LOGS, open_session
from harness.lab.hosts.cluster import cluster
from harness.lab.ports import LOOPBACK
from harness.lab.processes import VARIABLE
from harness.run.native import PRELOAD_PARTITIONS
from harness.run.pipeline import state_dir
from impls import catalog
from impls.mechanisms.native_spark.conf import NATIVE_SETTINGS
from impls.mechanisms.native_spark.real_time import NATIVE_REAL_TIME_SETTINGS
from impls.spark.clocks import clock_offsets
from impls.spark.master import address_towards, is_local, standalone_addresses
from impls.spark.realtime.settings import real_time_settings, real_time_threads


def new_session(
    run: Run, master: str | None, *, name: str | None = None, settings: Mapping[str, str] | None = None
) -> SparkSession:
    """Starts the session that a run's query needs.

    Args:
        run: the run.
        master: address of Spark's master, None for local mode.
        name: of the application, the run's folder by default.
        settings: further ones.
    """
    native, own = run.mechanism in catalog.natives(), {**KEEP_LOGS, **(settings or {})}
    if native:
        own |= NATIVE_SETTINGS | (NATIVE_REAL_TIME_SETTINGS if run.real_time else {})
    elif run.real_time:
        own |= real_time_settings()
    if run.fault is not None and not is_local(master):  # of executors elsewhere; in local mode it is there already
        own[f"spark.executorEnv.{VARIABLE}"] = os.environ[VARIABLE]
    more: dict[str, Any] = {"master": master, "settings": own, "archive": run.experiment.archive}
    return open_session(name or run.folder, _threads(run, native=native), **more)


def _threads(run: Run, *, native: bool) -> int:
    """Returns the tasks that run at once; in real time all of a query do, and two are left for other jobs."""
    partitions = run.experiment.input_partitions
    if not run.real_time:
        return run.experiment.most_workers
    if native:  # one partition of state more after a command that keeps the number of workers
        return real_time_threads(partitions + PRELOAD_PARTITIONS, run.experiment.most_workers + 1)
    return real_time_threads(partitions, max(run.slots, run.experiment.most_workers))  # it restarts with more slots


def redis_durability(run: Run) -> str | None:
    """Returns the durability of the Redis server that the mechanism needs, None where its options name a server."""
    needed = "redis" in catalog.options(run.mechanism) and not run.options().get("redis")
    return run.experiment.durability if needed else None


@dataclass(frozen=True, slots=True)
class Place:
    """Where a run's tasks run.

    Attributes:
        master: address of Spark's master, None for local mode.
        address: of this machine, as tasks reach it.
        state_dir: folder of the workers' state, on each host its own.
    """

    master: str | None
    address: str
    state_dir: Path

    def tell_clocks(self, spark: SparkSession | None, tell: Callable[[str, dict[str, Any]], None]) -> None:
        """Tells, as an event, how far the clocks of a cluster's hosts are from this machine's."""
        if spark is not None and not is_local(self.master):
            tell("clocks", {"offsets": clock_offsets(spark, self.address)})


@contextmanager
def placed(run: Run, folder: Path) -> Iterator[Place]:
    """Yields the place of a run; a cluster that the experiment wants is started in the run's folder, and ended."""
    experiment = run.experiment
    if experiment.cluster is None:
        master = experiment.master
        addresses = standalone_addresses(master) if master else []
        yield Place(master, address_towards(addresses[0][0]) if addresses else LOOPBACK, state_dir(run, folder))
        return
    with cluster(
        experiment.cluster, folder=folder / "cluster", cores=_cores_of(experiment), netem=experiment.netem
    ) as hosts:
        yield Place(hosts.master, hosts.driver, hosts.state_dir)


def _cores_of(experiment: Experiment) -> int:
    """Returns the tasks that each host must run at once so that all workers have a place."""
    assert experiment.cluster is not None, "only a cluster has hosts"
    return -(-experiment.most_workers // experiment.cluster)
