"""The query under fault tests: `python -m harness.suites.faults.query FOLDER` runs what FOLDER/run.json says.

It runs until the control channel of its checkpoint stops it or its standard input ends, and writes
the files of a run into the folder. A query that fails says why in one line of JSON: `error` is a sentence of ours,
`crash` is anything else.
"""

import json
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from generators.stdin import watch_stdin
from harness.experiment.description import Run
from harness.lab.processes import VARIABLE
from harness.run.application import new_session
from harness.run.pipeline import start_query
from harness.run.recorder import Recorder
from impls.driver.handle import StreamHandle
from impls.errors import InvalidPlanError, StateError, UsageError

Serve = Callable[[SparkSession, Run, Path, Recorder, threading.Event], None]
"""Runs a query until it has ended, or until its parent is gone, which the event says."""

_POLL_S = 0.05


def _tell(**words: str) -> None:
    sys.stdout.write(json.dumps(words) + "\n")
    sys.stdout.flush()


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


def main(arguments: list[str], serve: Serve = _serve) -> int:
    """Runs the query and returns the exit code: 0 stopped as asked, 1 ended with a sentence, 3 with anything else."""
    folder, orphaned = Path(arguments[0]), threading.Event()
    watch_stdin(orphaned.set)
    run = Run.read(folder)
    recorder = Recorder(folder, real_time=run.real_time)
    try:
        faults = {f"spark.executorEnv.{VARIABLE}": os.environ[VARIABLE]}  # of hosts; here it is there already
        spark = new_session(run, run.experiment.master, name=f"faults-{run.mechanism}", settings=faults)
        serve(spark, run, folder, recorder, orphaned)
    except (UsageError, StateError, InvalidPlanError) as error:
        _tell(error=str(error))
        return 1
    except Exception as error:  # the JVM may be dead: whatever is left of the session says so in its own way
        _tell(crash=f"{type(error).__name__}: {error}")
        return 3
    finally:
        recorder.close()
    return 0


def end(code: int) -> None:
    """Ends this process at once: a session without its JVM would wait for it; the JVM ends when its input does."""
    sys.stdout.flush()
    os._exit(code)


if __name__ == "__main__":
    end(main(sys.argv[1:]))
