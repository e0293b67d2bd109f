"""A native query's checkpoint made by hand: the logs as Spark writes them."""

import json
from pathlib import Path

CONF = {"spark.sql.streaming.aggregation.stateFormatVersion": "2", "spark.sql.shuffle.partitions": "4"}
KAFKA = ('{"in":{"0":10,"1":20}}',)


def native_log(folder: Path, committed: int, planned: int | None = None, *, sources=KAFKA, conf=CONF, version="v1"):
    """Writes the logs of batches 0..planned, of which those up to `committed` are committed; -1 for none."""
    for name in ("offsets", "commits"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    head = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": 1_795_426_589_019, "conf": conf})
    for batch in range((committed if planned is None else planned) + 1):
        (folder / "offsets" / str(batch)).write_text("\n".join([version, head, *sources]))
        (folder / "offsets" / f".{batch}.crc").write_text("crc")
    for batch in range(committed + 1):
        (folder / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":4000}')
    return folder
