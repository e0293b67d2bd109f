"""Python workers of executors: whether they can run a step, their start, and what keeps each on its seat.

A worker's first results wait for its producer, half a second until the broker has given it an id. In the middle of a
rescale that is the longest part of the epoch in which a new worker first runs.

Each epoch is a job of its own, and nothing in Spark says that a partition should run where it ran before: with
`repartitionById` a worker changed its host every second epoch. The tasks of a join prefer the executors that have the
partitions of its cached side.
"""

import os
import re
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from impls.errors import StateError, UsageError
from impls.spark.master import is_local
from impls.worker.sinks import Sink

LIBRARIES = {
    "confluent_kafka": "confluent-kafka",
    "google.protobuf.message": "protobuf",  # "google.protobuf" is also a folder in a jar of Spark
    "lmdb": "lmdb",
    "numpy": "numpy",
    "orjson": "orjson",
    "pandas": "pandas",
    "pyarrow": "pyarrow",
    "redis": "redis",
    "xxhash": "xxhash",
}
"""Module -> distribution: what an executor imports of other projects, beside pyspark."""

T = TypeVar("T")
_SHIP = "ship a packed environment (archive=, or --archive; ./inv cluster.pack makes one)"
_VERSION = re.compile(r"PYTHON_VERSION_MISMATCH.*?(\d+\.\d+)", re.DOTALL)
_PROGRAM = re.compile(r'Cannot run program "([^"]+)".*?error=\d+, ([\w ]+).*?PythonWorkerFactory', re.DOTALL)
_MODULE = re.compile(r"ModuleNotFoundError: No module named '([^']+)'")


def check_executors(spark: SparkSession) -> None:
    """Returns when each executor there is has imported what a step needs.

    Raises:
        UsageError: one sentence that says which hosts lack what.
    """
    tasks = spark.sparkContext.defaultParallelism  # Spark offers all cores at once, so every executor gets some
    answers = _ask(spark, tasks, _importer((*LIBRARIES, "impls.spark.step")))
    if lacking := sorted({(host, program, lack) for host, program, lack in answers if lack}):
        host, program, lack = lacking[0]
        also = f" (and {len(lacking) - 1} more)" if lacking[1:] else ""
        raise UsageError(
            f"The Python {program} of the executors at {host}{also} cannot import {lack}: "
            f"install requirements-run.lock there, or {_SHIP}."
        )


def check_operator(spark: SparkSession, operator: object) -> None:
    """Returns when an executor has loaded the operator; raises UsageError when it cannot."""
    _ask(spark, 1, lambda _: [operator is not None])


def _ask(spark: SparkSession, tasks: int, function: Callable[[Iterable[int]], Iterable[T]]) -> list[T]:
    """Returns what tasks on the executors answer; raises UsageError when one fails four times."""
    context = spark.sparkContext
    context.setLogLevel("OFF")  # each failed attempt would be a stack trace; the cause is raised below
    try:
        return context.parallelize(range(tasks), tasks).mapPartitions(function).collect()
    except (Py4JError, PySparkException) as error:
        told = in_words(str(error)) or f"A task of the executors' Python fails: {_last_line(str(error))}"
        raise UsageError(told) from error
    finally:
        context.setLogLevel("ERROR")


def _importer(modules: tuple[str, ...]) -> Callable[[Iterable[int]], Iterator[tuple[str, str, str]]]:
    def look(_: Iterable[int]) -> Iterator[tuple[str, str, str]]:
        """Yields host, Python and what cannot be imported; goes by value, as this package may be what is missing."""
        import importlib  # noqa: PLC0415
        import socket  # noqa: PLC0415
        import sys  # noqa: PLC0415

        lack = []
        for name in modules:
            try:
                importlib.import_module(name)
            except ImportError as error:
                lack.append(name if isinstance(error, ModuleNotFoundError) else f"{name} ({error})")
        yield socket.gethostname(), sys.executable, ", ".join(lack)

    return look


def in_words(error: str) -> str:
    """Returns one sentence for what Spark tells when the executors' Python does not fit, "" for another error."""
    if match := _VERSION.search(error):
        own = f"{sys.version_info.major}.{sys.version_info.minor}"
        return (
            f"The executors run Python {match[1]} and this program runs Python {own}, and Spark needs the same "
            f"minor version at both: set PYSPARK_PYTHON to a Python {own} that the hosts have, or {_SHIP}."
        )
    if match := _PROGRAM.search(error):
        return (
            f"The executors cannot start the Python {match[1]} ({match[2].strip()}): set PYSPARK_PYTHON to one that "
            f"the hosts have, or {_SHIP}."
        )
    if match := _MODULE.search(error):
        name = match[1].split(".")[0]
        if any(name == module.split(".")[0] for module in (*LIBRARIES, "impls", "pyspark", "py4j")):
            return f"The executors' Python cannot import {name}: install requirements-run.lock there, or {_SHIP}."
        return f"The executors cannot import the module {name}: name its file in py_files of impls.stream."
    return ""


def _last_line(error: str) -> str:
    lines = [line.strip() for line in error.splitlines() if "Error" in line or "Exception" in line]
    return (lines or [error])[0][:300]


_MEET_S = 1.0  # for which a task waits for the others; where other queries have the slots, they never come
_POLL_S = 0.002


def warm_workers(spark: SparkSession, output: Sink) -> int:
    """Connects a Python process for each task that can run at once.

    Returns the number of processes, 0 where it cannot be done. On a cluster nothing is done: its tasks need not come
    back to the workers of this job.
    """
    context = spark.sparkContext
    if not is_local(context.master):
        return 0
    tasks, folder = context.defaultParallelism, tempfile.mkdtemp(dir=context._temp_dir)
    try:
        rows = spark.range(0, tasks, 1, tasks)
        rows.mapInArrow(partial(_connect, output, folder, tasks), rows.schema).collect()
        return len(list(Path(folder).glob("[0-9]*")))
    except PySparkException:  # the first epoch will do it
        return 0
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _connect(output: Sink, folder: str, tasks: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from (batch.slice(0, 0) for batch in batches)
    _meet(Path(folder), tasks)
    output.connect()


def _meet(folder: Path, tasks: int) -> None:
    """Waits until so many processes are here, so that each task has one of its own; one that gives up sends all on.

    A barrier of Spark's would do it too, and sleeps for a second in each of its tasks.
    """
    (folder / str(os.getpid())).touch()
    given_up, deadline = folder / "given-up", time.monotonic() + _MEET_S
    while len(list(folder.glob("[0-9]*"))) < tasks and not given_up.exists():
        if time.monotonic() > deadline:
            given_up.touch()
        time.sleep(_POLL_S)


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
