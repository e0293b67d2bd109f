"""What both steps of a real-time query are given to reach the driver and to read records."""

import os
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext

from impls.protocol.realtime import Hello, Role
from impls.realtime.link import Link

_BATCH_ID = "streaming.sql.batchId"


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

    def hello(self, role: Role) -> Hello:
        """Returns the first word of this Spark task."""
        context = TaskContext.get()
        assert context is not None, "it runs inside a Spark task"
        batch = int(context.getLocalProperty(_BATCH_ID) or 0)
        of = self.slots if role == "worker" else 0
        return Hello(role, context.partitionId(), of, self.run, batch, os.getpid(), context.stageId())
