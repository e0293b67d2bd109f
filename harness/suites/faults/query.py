"""The query under fault tests: `python -m harness.suites.faults.query FOLDER` does what FOLDER/query.json says.

It runs until the control channel of its checkpoint stops it or its standard input ends, and writes
the files of a run into the folder. A query that fails says why in one line of JSON: `error` is a sentence of ours,
`crash` is anything else.
"""

import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

from generators.stdin import watch_stdin
from harness.files import read_json
from harness.lab.bringup import KEEP_LOGS, open_session
from harness.run.pipeline import read_records
from harness.run.recorder import Recorder
from impls.api import stream
from impls.driver.handle import StreamHandle
from impls.errors import InvalidPlanError, StateError, UsageError
from impls.operators import DenseCount
from impls.worker.output import Output

__all__ = ["main", "start"]

_POLL_S = 0.05


def start(folder: Path, settings: dict[str, Any], recorder: Recorder) -> StreamHandle:
    """Starts the query on its checkpoint, or continues it."""
    spark = open_session(f"faults-{settings['mechanism']}", settings["threads"], settings=KEEP_LOGS)
    return stream(
        read_records(spark, settings["bootstrap"], settings["topics"][0]),
        key="key",
        time="scheduled_us",
        operator=DenseCount(keys=settings["keys"]),
        results=Output(settings["bootstrap"], settings["topics"][1], settings["partitions"]),
        state_dir=folder / "state",
        checkpoint=folder / "checkpoint",
        workers=settings["workers"],
        bins=settings["bins"],
        mechanism=settings["mechanism"],
        options=settings["options"],
        durability=settings["durability"],
        on_epoch=recorder.on_epoch,
        on_event=recorder.event,
    )


def _tell(**words: str) -> None:
    sys.stdout.write(json.dumps(words) + "\n")
    sys.stdout.flush()


def main(arguments: list[str]) -> int:
    """Runs the query and returns the exit code: 0 stopped as asked, 1 ended with a sentence, 3 with anything else."""
    folder, orphaned = Path(arguments[0]), threading.Event()
    watch_stdin(orphaned.set)
    recorder = Recorder(folder)
    try:
        query = start(folder, read_json(folder / "query.json"), recorder)
        while not query.await_end(_POLL_S):
            if orphaned.is_set():
                query.stop()
    except (UsageError, StateError, InvalidPlanError) as error:
        _tell(error=str(error))
        return 1
    except Exception as error:  # the JVM may be dead: whatever is left of the session says so in its own way
        _tell(crash=f"{type(error).__name__}: {error}")
        return 3
    finally:
        recorder.close()
    return 0


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(code)  # a session without its JVM would wait for it; the JVM ends when its standard input does
