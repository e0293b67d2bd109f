"""The query that changes: `python -m harness.suites.changes.query FOLDER` runs what FOLDER/run.json says.

It runs until the control channel of its checkpoint stops it or its standard input ends. When it was stopped and
FOLDER/pipeline.json names other code than it ran, it is started again with that code, on the same checkpoint and in the
same session: that is a change by stop and restart.
"""

import sys
import threading
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark program uses

from harness.experiment.description import Run
from harness.files import read_json, write_json
from harness.oracle.changes.columns import Code
from harness.run.pipeline import read_records
from harness.run.recorder import Recorder
from harness.suites.changes.operators import COLUMNS, version_0
from harness.suites.faults.query import await_query, end, main
from impls.api import RealTime, stream
from impls.driver.handle import StreamHandle
from impls.worker.results import Output

_PIPELINE = "pipeline.json"


def write_pipeline(folder: Path, code: Code) -> None:
    """Names the code that a query runs at its next start."""
    write_json(folder / _PIPELINE, asdict(code))


def _read_pipeline(folder: Path) -> Code:
    return Code(**read_json(folder / _PIPELINE))


def _start(spark: SparkSession, run: Run, folder: Path, code: Code, recorder: Recorder) -> StreamHandle:
    """Starts the query with a version's code, or continues it."""
    experiment, bootstrap = run.experiment, str(run.experiment.bootstrap)
    frame = read_records(spark, bootstrap, "in").withColumns({"label": F.lit(0).cast("int"), "number": F.col("offset")})
    of_mode: dict[str, Any] = {"real_time": RealTime(run.slots, experiment.batch)} if run.real_time else {}
    return stream(
        frame,
        key="key",
        time="scheduled_us",
        columns=COLUMNS,
        operator=version_0(code, experiment.keys),
        results=Output(bootstrap, "out", experiment.result_partitions),
        state_dir=folder / "state",
        checkpoint=folder / "checkpoint",
        workers=experiment.workers,
        bins=experiment.bins,
        mechanism=run.mechanism,
        durability=experiment.durability,
        mode=run.mode,
        **of_mode,
        on_epoch=recorder.on_epoch,
        on_event=recorder.event,
    )


def _serve(spark: SparkSession, run: Run, folder: Path, recorder: Recorder, orphaned: threading.Event) -> None:
    """Runs the query until it is stopped for good."""
    code: Code | None = None
    while code != _read_pipeline(folder) and not orphaned.is_set():
        code = _read_pipeline(folder)
        query = _start(spark, run, folder, code, recorder)
        await_query(query, orphaned)


if __name__ == "__main__":
    end(main(sys.argv[1:], _serve))
