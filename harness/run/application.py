"""The Spark session of a run, and a query that is stopped and started with it when its mechanism asks for that."""

import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import SparkSession

from harness.experiment.description import Run
from harness.lab.bringup import KEEP_LOGS, open_session, stop_session
from harness.lab.hosts.cluster import cluster
from harness.lab.ports import LOOPBACK
from harness.lab.processes import VARIABLE
from harness.measure.memory import executors_of
from harness.run.chained import ChainedQuery, second_of
from harness.run.engine import EngineQuery
from harness.run.pipeline import PRELOAD_PARTITIONS, state_dir
from impls import catalog
from impls.autoscale.loop import AutoscaleSettings
from impls.driver.handle import StreamHandle
from impls.driver.observed import OnEvent
from impls.errors import StateError, UsageError
from impls.mechanisms.native_spark.conf import NATIVE_SETTINGS
from impls.mechanisms.native_spark.query import NativeQuery
from impls.mechanisms.native_spark.real_time import NATIVE_REAL_TIME_SETTINGS
from impls.spark.cluster import clock_offsets, end_session
from impls.spark.master import address_towards, is_local, standalone_addresses
from impls.spark.realtime.settings import real_time_settings, real_time_threads
from impls.spark.secrecy import TRUSTED

Query = StreamHandle | ChainedQuery | NativeQuery | EngineQuery

_RESTART_DEADLINE_S = 120.0


class Application:
    """Offers what the harness needs of a StreamHandle, whichever session the query runs in; `with` stops it.

    A watcher starts a new session, and the query in it, when a handle has ended and asks for one.
    """

    def __init__(
        self,
        spark: SparkSession | None,
        *,
        new_session: Callable[[], SparkSession],
        start: Callable[[Any], Query],
        on_event: OnEvent,
        autoscale: AutoscaleSettings | None = None,
    ):
        """Does not start the query; with `autoscale` that is how it is scaled between the two calls that say so.

        There is no session where another engine runs the query.
        """
        self._autoscale, self._autoscaled = autoscale, False
        self.spark, self._new_session, self._start, self._on_event = spark, new_session, start, on_event
        self._handle: Query | None = None
        self._changed = threading.Condition()
        self._failure: Exception | None = None
        self._stopping = False
        self._cluster_name = _cluster_name(spark)

    def begin(self) -> None:
        """Starts the query."""
        self._handle = self._start(self.spark)
        threading.Thread(target=self._watch, name="application", daemon=True).start()

    def _watch(self) -> None:
        while True:
            handle = self._current()
            if not handle.ended(1.0):
                continue
            if self._stopping or not handle.wants_restart:
                return
            try:
                self._renew()
            except Exception as error:
                with self._changed:
                    self._failure = error
                    self._changed.notify_all()
                return

    def _renew(self) -> None:
        with self._changed:
            self._handle = None
        self._on_event("application_stop", {})
        assert self.spark is not None, "only a query of Spark's asks for another session"
        end_session(self.spark)
        self.spark = self._new_session()
        self._cluster_name = _cluster_name(self.spark)
        handle = self._start(self.spark)
        self._on_event("application_start", {})
        with self._changed:
            self._handle = handle
            if self._autoscaled:
                self._scale(handle)
            self._changed.notify_all()

    def _current(self) -> Query:
        with self._changed:
            if not self._changed.wait_for(lambda: self._handle is not None or self._failure, _RESTART_DEADLINE_S):
                raise StateError(f"The application did not start again in {_RESTART_DEADLINE_S:.0f} s.")
            if self._failure is not None:
                raise self._failure
            assert self._handle is not None, "wait_for has seen it"
            return self._handle

    def begin_autoscaling(self) -> None:
        """Lets the policy rescale the query, whichever handle it has, if there is one."""
        if self._autoscale is None:
            return
        handle = self._current()
        with self._changed:
            self._autoscaled = True
            self._scale(handle)

    def _scale(self, handle: Query) -> None:
        how = self._autoscale
        assert how is not None, "only then the query is autoscaled"
        assert isinstance(handle, StreamHandle | ChainedQuery), "Spark's own query is refused beforehand"
        handle.autoscale(
            how.policy, min=how.least, max=how.most, interval_s=how.interval_s, cooldown_s=how.cooldown_s,
            warmup=how.warmup,
        )  # fmt: skip

    def end_autoscaling(self) -> None:
        """Lets the policy rescale the query no more; nothing happens where it does not, or the query has ended."""
        with self._changed:
            was, self._autoscaled = self._autoscaled, False
            handle = self._handle
        if was and isinstance(handle, StreamHandle | ChainedQuery):
            with contextlib.suppress(UsageError):
                handle.autoscale(None)

    def rebalance(self, goal: NDArray[np.int32], *, label: str) -> str:
        """Asks for an assignment; see `StreamHandle.rebalance`."""
        return self._current().rebalance(goal, label=label)

    def status(self) -> dict[str, Any]:
        """Returns `StreamHandle.status`, waiting for a restart under way."""
        return self._current().status()

    def executors(self) -> list[int]:
        """Returns the process ids of a cluster's executors or another engine on this machine; none in local mode."""
        if isinstance(self._handle, EngineQuery):
            return list(self._handle.pids().values())
        return executors_of(self._cluster_name) if self._cluster_name else []

    def kill_worker(self) -> int:
        """Has another engine lose a process that holds state, and returns what its id was."""
        handle = self._current()
        assert isinstance(handle, EngineQuery), "others have points at which a process dies"
        return handle.kill_worker()

    @property
    def measured(self) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Record rates and sizes of bins; see `StreamHandle.measured`."""
        return self._current().measured

    @property
    def goal(self) -> NDArray[np.int32]:
        """The assignment last commanded."""
        return self._current().goal

    def await_end(self, timeout_s: float) -> bool:
        """Returns whether the query has ended for good; raises what it failed with."""
        handle = self._current()
        return handle.await_end(timeout_s) and not handle.wants_restart

    def end(self) -> None:
        """Stops the session that is there now."""
        if self.spark is not None:
            stop_session(self.spark)

    def __enter__(self) -> "Application":
        self.begin()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._stopping = True
        with self._changed:
            handle = self._handle
        if handle is not None:
            handle.__exit__(kind)


def _cluster_name(spark: SparkSession | None) -> str:
    """Returns the name that a cluster has given to the application, "" in local mode."""
    if spark is None:
        return ""
    context = spark.sparkContext
    return "" if is_local(context.master) else str(context.applicationId)


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
    native, settings_here = run.mechanism in catalog.natives(), {**KEEP_LOGS, **(settings or {})}
    if native:
        settings_here |= NATIVE_SETTINGS | (NATIVE_REAL_TIME_SETTINGS if run.real_time else {})
    elif run.real_time:
        settings_here |= real_time_settings()
    if run.fault is not None and not is_local(master):  # of executors elsewhere; in local mode it is there already
        settings_here[f"spark.executorEnv.{VARIABLE}"] = os.environ[VARIABLE]
    if run.experiment.cluster is not None:
        settings_here[TRUSTED] = "true"  # all of its hosts are on this machine
    more: dict[str, Any] = {"master": master, "settings": settings_here, "archive": run.experiment.archive}
    return open_session(name or run.folder, _threads(run, native=native), **more)


def _threads(run: Run, *, native: bool) -> int:
    """Returns the tasks that run at once; in real time all of a query do, and two are left for other jobs."""
    partitions, two_stages = run.experiment.input_partitions, second_of(run) is not None
    if not run.real_time:
        return _workers(run)
    if native:  # one partition of state more after a command that keeps the number of workers
        return real_time_threads(partitions + PRELOAD_PARTITIONS, run.experiment.most_workers + 1)
    slots = max(run.slots, run.experiment.most_workers)  # it restarts with more slots
    read = (partitions, run.experiment.result_partitions) if two_stages else (partitions,)
    return sum(real_time_threads(number, slots) for number in read)


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

    def tell_clocks(self, spark: SparkSession | None, tell: OnEvent) -> None:
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
    with cluster(experiment.cluster, folder=folder / "cluster", cores=_cores_of(run), netem=experiment.netem) as hosts:
        yield Place(hosts.master, hosts.driver, hosts.state_dir)


def _workers(run: Run) -> int:
    """Returns the most workers that there are at once, of both stages where there are two."""
    return run.experiment.most_workers * (1 if second_of(run) is None else 2)


def _cores_of(run: Run) -> int:
    """Returns the tasks that each host must run at once so that all workers have a place."""
    assert run.experiment.cluster is not None, "only a cluster has hosts"
    return -(-_workers(run) // run.experiment.cluster)
