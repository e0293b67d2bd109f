"""A session in which queries of Spark's own start with the state store that they need, and others without it."""

from contextlib import AbstractContextManager

from pyspark.sql import SparkSession

from impls.spark.session import LOCAL_FILES, with_settings

NATIVE_SETTINGS = {
    "spark.sql.streaming.stateStore.providerClass":
    "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.stateStore.checkpointFormatVersion": "2",  # offline repartition asks for it
    "spark.hadoop.fs.file.impl": LOCAL_FILES["fs.file.impl"],
}  # fmt: skip


def own_state_store(spark: SparkSession, partitions: int) -> AbstractContextManager[None]:
    """Within it a query that starts, or a reader of state, has Spark's RocksDB store with `partitions` partitions.

    A query keeps the settings of its start.
    """
    wanted = {name: value for name, value in NATIVE_SETTINGS.items() if name.startswith("spark.sql")}
    return with_settings(spark, {**wanted, **LOCAL_FILES, "spark.sql.shuffle.partitions": str(partitions)})
