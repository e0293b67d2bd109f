"""Puts driver, executor and runner of a real-time query together."""

from collections.abc import Callable

from pyspark.sql import SparkSession

from impls.driver.driver import Driver
from impls.driver.handle import RunQuery
from impls.protocol.order import Executor
from impls.realtime.executor import RealTimeExecutor
from impls.realtime.link import Switchboard
from impls.spark.realtime.runner import RealTimeQuery, routers_counted, runner_of

__all__ = ["REAL_TIME_DROPS", "run_real_time"]

REAL_TIME_DROPS = 2_048  # entries that an old owner deletes in a tick: 5 ms in which its records wait


def run_real_time(
    spark: SparkSession,
    query: Callable[[Switchboard], RealTimeQuery],
    making: Callable[[Executor], Driver],
    *,
    slots: int,
) -> tuple[RunQuery, Driver, Callable[[], None]]:
    """Returns the runner of a query, its driver, and a function that frees what they hold.

    Args:
        spark: the query's session.
        query: makes the query of a switchboard.
        making: makes the driver of an executor.
        slots: most workers while the query runs; a checkpoint that goes on may need more, and gets them.
    """
    switchboard = Switchboard(routers_counted(spark))
    try:
        executor = RealTimeExecutor(switchboard)
        driver = making(executor)
        controller = driver.controller
        run = runner_of(
            query(switchboard),
            executor,
            slots=max(slots, 1 + int(controller.routing.max()), 1 + int(controller.location.max())),
            next_tick=lambda: driver.last_epoch + 1,
            busy=lambda: controller.busy,
        )
    except BaseException:
        switchboard.close()
        raise
    return run, driver, switchboard.close
