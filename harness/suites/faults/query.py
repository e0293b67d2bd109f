"""The query under fault tests: the program `harness.suites.faults.query` runs what FOLDER/run.json says.

It runs until the control channel of its checkpoint stops it or its standard input ends, and writes the files of a run
into the folder.
"""

import os
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from pyspark.sql import SparkSession

from harness.experiment.description import Run
from harness.lab.child import Parent, program
from harness.lab.processes import VARIABLE
from harness.run.application import new_session
from harness.run.pipeline import start_query
from harness.run.recorder import Recorder
from impls.driver.handle import StreamHandle

Serve = Callable[[SparkSession, Run, Path, Recorder, threading.Event], None]
"""Runs a query until it has ended, or until its parent is gone, which the event says."""

_POLL_S = 0.05


def _serve(spark: SparkSession, run: Run, folder: Path, recorder: Recorder, orphaned: threading.Event) -> None:
    """Runs the query until it has ended."""
    own = run.experiment
    state = None if own.state_dir is None else Path(own.state_dir)
    query = start_query(
        spark, run, folder, str(own.bootstrap), ("in", "out"), on_epoch=recorder.on_epoch,
        on_event=recorder.event, state=state,
    )  # fmt: skip
    await_query(query, orphaned)


def await_query(query: StreamHandle, orphaned: threading.Event) -> None:
    """Returns when a query has ended, and stops it when its parent is gone; raises what it failed with."""
    while not query.await_end(_POLL_S):
        if orphaned.is_set():
            query.stop()


def run_query(folder: Path, parent: Parent, serve: Serve = _serve) -> None:
    """Runs the query until it has ended; raises what it failed with."""
    run = Run.read(folder)
    with closing(Recorder(folder, real_time=run.real_time)) as recorder:
        faults = {f"spark.executorEnv.{VARIABLE}": os.environ[VARIABLE]}  # of hosts; here it is there already
        spark = new_session(run, run.experiment.master, name=f"faults-{run.mechanism}", settings=faults)
        serve(spark, run, folder, recorder, parent.gone)


def end(code: int) -> None:
    """Ends this process at once: a session without its JVM would wait for it; the JVM ends when its input does."""
    sys.stdout.flush()
    os._exit(code)


if __name__ == "__main__":
    end(program(run_query))
