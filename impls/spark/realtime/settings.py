"""What a real-time query needs of its session, and what its two steps are given."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext

from impls.faults import started_ticks
from impls.protocol.session import Hello
from impls.realtime.link import Link
from impls.realtime.wire import BATCH_ID, WORKER_SOCKET

_SETTINGS = {
    "spark.sql.streaming.realTimeMode.allowlistCheck": "false",  # mapInArrow is not on Spark's list of what it tested
    "spark.sql.streaming.realTimeMode.minBatchDuration": "500ms",  # tests end batches; Spark's bound is 5 s
    "spark.python.udf.pipelined.enabled": "true",  # else a task that waits for input does not see its process die
}


def real_time_settings(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Returns the settings for `spark_session(..., settings=...)`, and further ones."""
    return {**_SETTINGS, **(more or {})}


def real_time_threads(partitions: int, slots: int) -> int:
    """Returns the `threads` of a session: all tasks of a query run at once, and two are left for other jobs."""
    return partitions + slots + 2


@dataclass(frozen=True)
class Wiring:
    """The same for all tasks of one start of a query.

    Attributes:
        address: of the driver's switchboard.
        key: by which driver and tasks know each other.
        run: random name of this start of the query.
        slots: S tasks, the most workers there can be.
        schema: of records.
    """

    address: str
    key: bytes
    run: str
    slots: int
    schema: pa.Schema

    def connect(self) -> Link:
        """Connects this Spark task to the driver; raises EOFError when the driver is gone."""
        return Link(self.address, self.key)

    @property
    def flow(self) -> Path:
        """The file by which routers and workers share how far they are."""
        return Path(self.address).with_name(f"flow-{self.run}")

    def worker_address(self, batch: int, slot: int) -> str:
        """Returns where the worker of a slot takes blobs in a batch of Spark's; `Router.java` knows it too."""
        return str(Path(self.address).with_name(f"{WORKER_SOCKET}-{self.run}-{batch}-{slot}"))

    def hello(self) -> Hello:
        """Returns the first word of this Spark task, a worker."""
        context = TaskContext.get()
        assert context is not None, "it runs inside a Spark task"
        batch = int(context.getLocalProperty(BATCH_ID) or 0)
        pid = os.getpid()
        return Hello(
            "worker", context.partitionId(), self.slots, self.run, batch, pid, context.stageId(), started_ticks(pid)
        )  # fmt: skip
