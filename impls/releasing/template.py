"""The template: a native checkpoint that Spark itself has made with the user's query, in one batch without records.

What Spark keeps of a query beside its rows is then its own: schemas, column families, numbers of partitions, settings.
Only the logs are written here. A batch that is planned and not committed runs again from where the sources say that
they began, and both are the offsets behind the epoch.
"""

import json
import shutil
import uuid
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from impls.driver.journal import replace_bytes
from impls.errors import StateError, UsageError
from impls.spark.cause import cause_of
from impls.spark.session import LOCAL_FILES, with_settings

_STATE_STORE = "spark.sql.streaming.stateStore"
FORMAT = f"{_STATE_STORE}.checkpointFormatVersion"
_SETTINGS = {
    f"{_STATE_STORE}.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    "spark.sql.streaming.queryEvolution.enableSourceEvolution": "false",  # whose offset log has another format
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",  # the metadata name their place, and are moved
    "spark.sql.adaptive.enabled": "false",  # each partition of the state is written, also an empty one
    **LOCAL_FILES,
}
PARTITIONS = "spark.sql.shuffle.partitions"
_KEPT = {"_metadata", "_stateSchema"}  # folders of the state that are of no batch


def settings_of_state(spark: SparkSession, partitions: int) -> AbstractContextManager[None]:
    """Within it a query that starts keeps its state in RocksDB, in a number of partitions and the session's format."""
    version = str(spark.conf.get(FORMAT, "1"))  # Spark's reader and writer of state ask for it to be set
    return with_settings(spark, {**_SETTINGS, PARTITIONS: str(partitions), FORMAT: version})


def make_template(frame: DataFrame, folder: Path, lines: Sequence[bytes], output_mode: str) -> None:
    """Makes a native checkpoint of a Spark query behind its batch 0, which reads nothing.

    Args:
        frame: what the query writes.
        folder: the checkpoint, which is not there.
        lines: of each source the offsets at which it goes on, as Spark writes them.
        output_mode: the query's.

    Raises:
        UsageError: Spark refuses the query, or it has no source with offsets like these.
    """
    metadata = frame.sparkSession._jvm.org.apache.spark.sql.execution.streaming.checkpointing.OffsetSeqMetadata  # type: ignore[union-attr]
    head = json.loads(metadata.apply(0, 1, frame.sparkSession._jsparkSession.conf()).json())
    head["conf"][PARTITIONS] = frame.sparkSession.conf.get(PARTITIONS)  # which Spark copies when a query starts
    _write(folder / "metadata", json.dumps({"id": str(uuid.uuid4())}).encode())
    _write(folder / "offsets" / "0", b"v1", json.dumps(head).encode(), *lines)
    for number, line in enumerate(lines):
        _write(folder / "sources" / str(number) / "0", b"\0v1", line)  # Kafka's source has a zero byte before it
    writer = frame.writeStream.format("noop").outputMode(output_mode)
    try:
        query = writer.option("checkpointLocation", str(folder)).trigger(once=True).start()
        try:
            query.awaitTermination()
        finally:
            query.stop()
    except (PySparkException, Py4JJavaError) as error:
        raise UsageError(f"Spark does not run the query to release to. {cause_of(str(error))}") from error


def _write(path: Path, *lines: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_bytes(path, b"\n".join(lines))


def head_of(template: Path) -> dict[str, Any]:
    """Returns the settings of a template's batch."""
    return dict(json.loads((template / "offsets" / "0").read_bytes().split(b"\n")[1]))


def begin_checkpoint(template: Path, into: Path, batch: int, lines: Sequence[bytes], head: Mapping[str, Any]) -> None:
    """Makes of a template a checkpoint whose last batch is planned; its state and its commit are still to come.

    Args:
        template: what `make_template` has made.
        into: the folder, which is there.
        batch: number of the last batch, at least 1.
        lines: of each source the offsets behind it.
        head: watermark, time and settings of the batch.
    """
    shutil.copy(template / "metadata", into / "metadata")
    shutil.copytree(template / "sources", into / "sources")
    for path in template.glob("state/**/*"):
        if path.is_file() and _KEPT & set(path.relative_to(template).parts):
            target = into / path.relative_to(template)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
    text = json.dumps(head, separators=(",", ":")).encode()
    for number in (batch - 1, batch):  # Spark asks for the one before, and reads nothing by it
        _write(into / "offsets" / str(number), b"v1", text, *lines)
    _write(into / "commits" / str(batch - 1), b"v1", b'{"nextBatchWatermarkMs":0}')


def move_metadata(folder: Path, template: Path, place: str) -> None:
    """Lets metadata of operators in a folder, which name files of a template, name them in another place."""
    for path in folder.glob("state/*/_metadata/v2/*"):
        if path.name.startswith("."):
            continue
        version, _, text = path.read_text().partition("\n")
        found = json.loads(text)
        for store in found["stateStoreInfo"]:
            store["stateSchemaFilePaths"] = [_moved(name, template, place) for name in store["stateSchemaFilePaths"]]
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
        _write(path, version.encode(), json.dumps(found, separators=(",", ":")).encode())


def _moved(name: str, template: Path, place: str) -> str:
    """Returns a file's name in another place; raises StateError for one that is not the template's."""
    own = f"file:{template}/"
    if not name.startswith(own):
        raise StateError(f"Spark notes the file {name}, which is not in {template}: its version is not known here.")
    return f"{place}/{name.removeprefix(own)}"
