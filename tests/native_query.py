"""Spark's own queries over a topic, run until all of it is read and ended: what is adopted in tests."""

from pipeline import await_true

from impls.adoption.native import read_log
from impls.durability.files import Files
from impls.errors import UsageError

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
HDFS = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"


def native_session(spark, provider=ROCKSDB, **more):
    """A session whose queries keep state with a provider, in three partitions."""
    session = spark.newSession()
    settings = {
        "spark.sql.streaming.stateStore.providerClass": provider, "spark.sql.shuffle.partitions": "3",
        "fs.file.impl": "org.apache.hadoop.fs.LocalFileSystem", "fs.file.impl.disable.cache": "true", **more,
    }  # fmt: skip
    for name, value in settings.items():
        session.conf.set(name, value)
    return session


def run_native(frame, checkpoint, mode="update"):
    """Runs a streaming frame on all that its source has, and ends it."""
    writer = frame.writeStream.format("noop").outputMode(mode).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(120)


def run_native_until(frame, checkpoint, records):
    """Runs a streaming frame until a batch is committed behind as many records, and stops it wherever it then is.

    Processing time gives Spark one more batch to run for ever, so `availableNow` does not end.
    """
    writer = frame.writeStream.format("noop").outputMode("update").option("checkpointLocation", str(checkpoint))
    query = writer.start()
    await_true(lambda: _read(checkpoint) >= records, f"Spark to commit {records} records", 120)
    query.stop()


def _read(checkpoint):
    try:
        offsets = read_log(Files(str(checkpoint))).offsets
    except UsageError:
        return 0
    return sum(at for parts in offsets.values() for at in parts.values())


def uncommit(checkpoint):
    """Makes a checkpoint what it is when the query dies before it commits its last batch, whose number is returned."""
    last = max(int(path.name) for path in (checkpoint / "commits").glob("[0-9]*"))
    (checkpoint / "commits" / str(last)).unlink()
    return last


def files_below(folder):
    """Every file with the time of its last change."""
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}
