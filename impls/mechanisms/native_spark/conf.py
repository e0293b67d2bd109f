"""A session in which queries of Spark's own start with the state store that they need, and others without it."""

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

_LOCAL = "org.apache.hadoop.fs.LocalFileSystem"
NATIVE_SETTINGS = {
    "spark.sql.streaming.stateStore.providerClass":
    "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.stateStore.checkpointFormatVersion": "2",  # offline repartition asks for it
    # RocksDB's snapshots copy through Hadoop's LocalFileSystem and fail on the raw one
    "spark.hadoop.fs.file.impl": _LOCAL,
}  # fmt: skip


@contextmanager
def own_state_store(spark: SparkSession, partitions: int) -> Iterator[None]:
    """Within it a query that starts, or a reader of state, has Spark's RocksDB store with `partitions` partitions.

    A query keeps the settings of its start.
    """
    wanted = {name: value for name, value in NATIVE_SETTINGS.items() if name.startswith("spark.sql")}
    wanted |= {"spark.sql.shuffle.partitions": str(partitions), "fs.file.impl": _LOCAL}
    wanted["fs.file.impl.disable.cache"] = "true"  # it holds what other queries of the session use
    before = {name: spark.conf.get(name, None) for name in wanted}
    for name, value in wanted.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            spark.conf.unset(name) if old is None else spark.conf.set(name, old)
