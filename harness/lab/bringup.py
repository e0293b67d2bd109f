"""What runs around a query, brought up together: broker, topics, Spark session, Redis server."""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from harness.lab.broker import Broker, EmbeddedBroker, ExternalBroker
from harness.lab.ports import LOOPBACK
from harness.lab.redis_server import RedisServer
from harness.lab.topics import create_topics
from harness.setup.java import ensure_jars, use_java
from harness.setup.pack import archive_of
from impls.spark.session import spark_session
from impls.worker.output import close_producers

KEEP_LOGS = {"spark.sql.streaming.minBatchesToRetain": "1000000"}  # the oracle reads the whole offset log


@dataclass(frozen=True, slots=True)
class Services:
    """What has been brought up: a broker that answers, and what else was asked for, else None."""

    broker: Broker
    session: SparkSession | None
    redis: RedisServer | None

    @property
    def spark(self) -> SparkSession:
        """The session, which must have been asked for."""
        assert self.session is not None, "bring_up was not asked for a session"
        return self.session

    @property
    def redis_url(self) -> str:
        """The Redis server's address, "" where there is none."""
        return self.redis.url if self.redis else ""


def embedded_broker(folder: Path, port: int | None = None, host: str = LOOPBACK) -> EmbeddedBroker:
    """Returns a broker of this program with its data in a folder, not started yet; raises UsageError without Java."""
    return EmbeddedBroker(folder, ensure_jars().broker, use_java(), port=port, host=host)


def open_session(
    name: str,
    threads: int,
    *,
    master: str | None = None,
    archive: str = "auto",
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """Starts a session with the Kafka connector, see `spark_session`; raises UsageError where Java is missing.

    On a cluster the executors get the environment that `archive_of` finds for `archive`.
    """
    use_java()
    more: dict[str, Any] = {"name": name, "settings": settings, "archive": archive_of(archive)}
    return spark_session(ensure_jars().spark, threads=threads, master=master, **more)


def stop_session(spark: SparkSession) -> None:
    """Stops a session unless that has been done: its JVM may be gone, and then a second stop fails."""
    if spark.sparkContext._jsc is not None:
        spark.stop()


def _end_session(spark: SparkSession) -> None:
    """Stops a session at last: one whose JVM is gone has ended, and an error here would hide why."""
    with suppress(Py4JError, OSError):
        stop_session(spark)


@contextmanager
def bring_up(
    folder: Path,
    *,
    bootstrap: str | None = None,
    session: Callable[[], SparkSession] | None = None,
    redis: str | None = None,
    topics: Mapping[str, int] | None = None,
    host: str = LOOPBACK,
) -> Iterator[Services]:
    """Brings services up, broker and session at the same time, and takes them down in the end, the session first.

    Args:
        folder: for the data of broker and Redis server.
        bootstrap: address of an existing broker, None for an embedded one.
        session: opens the Spark session; none is opened without it.
        redis: durability of a Redis server; none is started without it.
        topics: topics to create, name -> partitions.
        host: the address by which the hosts of the session's cluster reach what is started here.

    Raises:
        UsageError: a service does not answer before its deadline, or Java is missing.
    """
    broker = ExternalBroker(bootstrap) if bootstrap else embedded_broker(folder / "broker", host=host)
    with ExitStack() as stack:
        stack.callback(broker.stop)
        stack.callback(close_producers)  # those of this process write to the broker
        server = stack.enter_context(RedisServer(folder / "redis", redis, host=host)) if redis else None
        with ThreadPoolExecutor(1) as pool:
            starting = pool.submit(broker.start)
            spark = session() if session else None
            if spark is not None:
                stack.callback(_end_session, spark)
            starting.result()
        if topics:
            create_topics(broker.bootstrap, topics)
        yield Services(broker, spark, server)
