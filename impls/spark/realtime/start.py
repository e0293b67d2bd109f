"""Puts driver, executor and runner of a real-time query together."""

import re
import time
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial

import pyspark
from pyspark.sql import DataFrame, SparkSession

from impls.closing import close_all, closed_on_error
from impls.driver.driver import Driver
from impls.driver.handle import RunQuery
from impls.driver.milestones import awaiting, rising
from impls.errors import UsageError
from impls.protocol.controller import Controller
from impls.protocol.eventtime import EventClock
from impls.protocol.order import Executor
from impls.realtime.executor import RealTimeExecutor
from impls.realtime.link import Switchboard
from impls.spark.identity import Identified, clock_in, streaming_sources
from impls.spark.master import is_local, threads_of
from impls.spark.realtime.room import Room
from impls.spark.realtime.runner import QUIET_S, RealTimeQuery, routers_counted, runner_of
from impls.spark.realtime.settings import real_time_settings

_TIMERS_S, _TIMERS_MOST = 1.0, 4  # of each second, so many epochs begin at once for timers
_HELD_S = 1.0  # an epoch is not held back longer for a milestone that may come
REAL_TIME_DROPS = 2_048  # entries that an old owner deletes in an epoch: 5 ms in which its records wait


class Haste:
    """begins() says whether the next epoch begins at once, and quiet_s() when it does otherwise.

    An epoch begins at once while something moves. It also does for a timer: where the watermark or the input has
    reached it, or where a milestone will let the watermark reach it once an epoch finds that all before it was read.
    At most four epochs of a second begin so: else a query with many timers would be busy with epochs.

    While a query whose results are the input runs an epoch, which may bring a milestone, this one begins none by itself
    for up to a second. If one were under way when the milestone comes, timers would have to wait until it has ended.

    Args:
        controller: the query's.
        timers: returns whether a worker has seen what lets a timer run, and the time of the earliest timer.
        now: a clock that does not go back, in seconds.
        milestones: returns for each query whose results are the input the last one before which some are still to be
            read, None for none.
        milestones_come: returns whether one of these queries runs an epoch.
    """

    def __init__(
        self,
        controller: Controller,
        timers: Callable[[], tuple[bool, int | None]] = lambda: (False, None),
        now: Callable[[], float] = time.monotonic,
        *,
        milestones: Callable[[], Iterable[int | None]] = tuple,
        milestones_come: Callable[[], bool] = lambda: False,
    ):
        self._controller, self._timers, self._now, self._milestones = controller, timers, now, milestones
        self._milestones_come = milestones_come
        self._begun: deque[float] = deque(maxlen=_TIMERS_MOST)

    def begins(self) -> bool:
        """Returns whether the next epoch begins at once."""
        controller, clock = self._controller, self._controller.clock
        if controller.busy or clock is None:
            return controller.busy
        return self._for_timers(clock)

    def quiet_s(self) -> float:
        """Returns for how many seconds no epoch begins behind the last one, where none begins at once."""
        return _HELD_S if self._milestones_come() else QUIET_S

    def _for_timers(self, clock: EventClock) -> bool:
        (waits, due), milestones = self._timers(), list(self._milestones())
        if not (waits or clock.reached(due) or clock.will_reach(due, milestones)):
            return False
        now = self._now()
        if len(self._begun) == _TIMERS_MOST and now - self._begun[0] < _TIMERS_S:
            return False
        self._begun.append(now)
        return True


def run_real_time(
    spark: SparkSession,
    query: Callable[[Switchboard], RealTimeQuery],
    making: Callable[[Executor], Driver],
    *,
    slots: int,
    partitions: int,
) -> tuple[RunQuery, Driver, Callable[[], None]]:
    """Returns the runner of a query, its driver, and a function that frees what they hold.

    Args:
        spark: the query's session.
        query: makes the query of a switchboard.
        making: makes the driver of an executor.
        slots: most workers while the query runs; a checkpoint that goes on may need more, and gets them.
        partitions: of the input, as far as that is known.

    Raises:
        UsageError: other queries of the session leave too few threads.
    """
    context = spark.sparkContext
    with (
        closed_on_error(
            Room(str(context.applicationId), threads_of(context.master), partitions, routers_counted(spark))
        ) as room,
        closed_on_error(Switchboard(room.counted)) as switchboard,
    ):
        executor = RealTimeExecutor(switchboard)
        driver = making(executor)
        driver.before_end = executor.begin_last
        controller = driver.controller
        if controller.clock is not None:
            executor.rise_by(rising(driver), awaiting(driver))
        most = max(slots, 1 + int(controller.routing.max()), 1 + int(controller.location.max()))
        room.begin(most)
        room.wanted = lambda: max(1 + int(controller.commanded.max()), driver.autoscaled_to)
        driver.allowing = room.allowing
        haste = Haste(
            controller,
            lambda: (executor.timers_wait, executor.due),
            milestones=lambda: [waiting() for waiting in driver.waiting],
            milestones_come=lambda: any(comes() for comes in driver.coming),
        )
        run = runner_of(
            query(switchboard),
            executor,
            slots=most,
            next_epoch=lambda: driver.last_epoch + 1,
            busy=lambda: driver.ending or haste.begins(),
            quiet_s=haste.quiet_s,
            resized=room.resize,
        )
    return run, driver, partial(close_all, (switchboard.close, room.close), "query in real time")


_OLDEST = (4, 3)
_SOURCE = "kafka"
_INSTEAD = 'use mode="micro-batch"'
_OF_BATCHES = ("minOffsetsPerTrigger", "maxOffsetsPerTrigger")  # Spark refuses them when its query has begun


def check_real_time(source: Identified, *, checkpoint: str, log_dir: str | None) -> None:
    """Raises UsageError for a query that real-time mode cannot run.

    Args:
        source: the source.
        checkpoint: the checkpoint's folder.
        log_dir: where the changelog goes, if elsewhere.
    """
    if tuple(map(int, re.findall(r"\d+", pyspark.__version__)[:2])) < _OLDEST:
        raise UsageError(f"Real-time mode needs pyspark 4.3, this is {pyspark.__version__}: {_INSTEAD}.")
    df = source.frame
    spark = df.sparkSession
    if not is_local(master := spark.sparkContext.master):
        raise UsageError(f"Real-time mode runs on one machine, not on {master}: {_INSTEAD} on a cluster.")
    for place in filter(None, (checkpoint, log_dir)):
        if "://" in place and not place.startswith("file://"):
            raise UsageError(f"Real-time mode keeps its changelog on this machine, not in {place}: {_INSTEAD} there.")
    _check_sources(df)
    if source.unordered:
        raise UsageError(
            f"Real-time mode tells the rows of a record apart by their order, which {source.unordered} may change when "
            f"the record is read again: do that in the operator, or {_INSTEAD}."
        )
    if clock := clock_in(df):
        raise UsageError(
            f"In real-time mode {clock} is another time when a record is read again: take Kafka's timestamp, or "
            "the time in the operator."
        )
    _check_settings(spark)


def _check_sources(df: DataFrame) -> None:
    for leaf in streaming_sources(df):
        if (name := str(leaf.sourceName())) != _SOURCE:
            raise UsageError(f"Real-time mode reads from Kafka, not from the source {name}: {_INSTEAD} for it.")
        for option in _OF_BATCHES:
            if leaf.extraOptions().get(option) is not None:
                raise UsageError(f"Real-time mode reads each record when it comes: leave the option {option} out.")


def _check_settings(spark: SparkSession) -> None:
    """Raises UsageError where a setting is missing: records would wait, or the tasks for each other."""
    own = spark.sparkContext.getConf()
    for name, value in real_time_settings().items():
        if own.get(name) != value:
            raise UsageError(
                f"Real-time mode needs {name}={value}: start the session with "
                "spark_session(..., settings=real_time_settings())."
            )
