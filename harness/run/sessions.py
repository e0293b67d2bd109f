"""The session of a run: as many tasks at once as its query needs, and the settings of its mode."""

import os
from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession

from harness.experiment.description import Run
from harness.lab.bringup import KEEP_LOGS, open_session
from harness.lab.processes import VARIABLE
from harness.run.native import PRELOAD_PARTITIONS
from impls import catalog
from impls.mechanisms.native_spark.conf import NATIVE_SETTINGS
from impls.mechanisms.native_spark.real_time import NATIVE_REAL_TIME_SETTINGS
from impls.spark.master import is_local
from impls.spark.realtime.settings import real_time_settings, real_time_threads

__all__ = ["new_session", "redis_durability"]


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
