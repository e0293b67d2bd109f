"""The anchor: a cached DataFrame of one row per seat that keeps each partition of an epoch's job on its executor.

Each epoch is a job of its own, and nothing in Spark says that a partition should run where it ran before: with
`repartitionById` a worker changed its host every second epoch. The tasks of a join prefer the executors that have the
partitions of its cached side.
"""

import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from impls.errors import StateError

NAME, SEAT = "rescale_name", "rescale_seat"  # the columns of the join: a seat's name, and that of a record's seat
# The user's own; what a standalone worker is started with; what Kubernetes and YARN tell a Spark executor.
_HOST_NAMES = ("SPARK_LOCAL_HOSTNAME", "SPARK_LOCAL_IP", "SPARK_EXECUTOR_POD_IP", "NM_HOST")
_SEATED = StructType([StructField("partition", IntegerType()), StructField("host", StringType())])
_NAMES_PER_SEAT = 40  # integers tried per seat for one whose hash names it; a seat misses all with 1 in 10^17
_HOLD_MS = 200  # each caching task keeps its slot this long, so that no executor takes a second one before


def host_name() -> str:
    """Returns the name under which Spark knows the host of this process, and by which other hosts reach it."""
    return next((os.environ[name] for name in _HOST_NAMES if os.environ.get(name)), None) or socket.gethostname()


@dataclass(frozen=True)
class Anchor:
    """Seats on the executors that there were when it was made.

    Attributes:
        frame: one row per seat, cached, partitioned by `NAME`.
        names: of each seat the integer that Spark's hash puts into the seat's partition.
        hosts: of each seat the host that its tasks ran on.
        side, condition: of the join, made once.
    """

    frame: DataFrame
    names: tuple[int, ...]
    hosts: tuple[str, ...]
    side: DataFrame
    condition: Column

    @classmethod
    def make(cls, spark: SparkSession, seats: int) -> "Anchor":
        """Caches an anchor and asks each seat for its host; raises StateError when a seat does not answer."""
        spark.conf.set("spark.sql.shuffle.partitions", str(seats))  # the join takes the anchor's partitions then
        names = _names(spark, seats)
        rows = spark.createDataFrame([(name,) for name in names], f"{NAME} int")
        held = rows.repartition(seats, NAME).where(f"reflect('java.lang.Thread', 'sleep', {_HOLD_MS}L) is not null")
        frame = held.cache()
        found = {row["partition"]: row["host"] for row in frame.mapInArrow(_where, _SEATED).collect()}
        if sorted(found) != list(range(seats)):
            raise StateError(f"Of {seats} seats on the cluster {len(found)} answered.")
        hosts = tuple(found[seat] for seat in range(seats))
        return cls(frame, names, hosts, frame.hint("shuffle_hash"), F.expr(f"{NAME} = {SEAT}"))

    def seated(self, records: DataFrame) -> DataFrame:
        """Returns records, which name their seat in the column `SEAT`, in the partitions of their seats.

        The anchor is the side that the join hashes, so that records stream by in their order and take no memory. A seat
        without records has one row of nulls. The columns of the join stay: to drop them is a plan to analyse.
        """
        return self.side.join(records, self.condition, "left_outer")

    def drop(self) -> None:
        """Frees what is cached."""
        self.frame.unpersist()


def _where(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Answers with the partition and host of this task."""
    for _ in batches:
        pass
    context = TaskContext.get()
    assert context is not None, "it runs inside a Spark task"
    yield pa.RecordBatch.from_pydict(
        {"partition": pa.array([context.partitionId()], pa.int32()), "host": pa.array([host_name()])}
    )


def _names(spark: SparkSession, seats: int) -> tuple[int, ...]:
    """Returns for each seat the lowest integer whose hash names its partition; no job is run for it."""
    tried = spark.createDataFrame([(name,) for name in range(seats * _NAMES_PER_SEAT)], f"{NAME} int")
    hashed = tried.select(NAME, F.pmod(F.hash(NAME), F.lit(seats)).alias("partition")).collect()
    first: dict[int, int] = {}
    for row in hashed:
        first.setdefault(row["partition"], row[NAME])
    if len(first) != seats:
        raise StateError(f"No integer below {seats * _NAMES_PER_SEAT} is hashed to each of {seats} partitions.")
    return tuple(first[seat] for seat in range(seats))
