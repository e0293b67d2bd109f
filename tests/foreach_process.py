"""A query from a folder of JSON files to a ForeachBatch in a process of its own, so that it can be killed inside."""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from processes import spawn

__all__ = ["SCHEMA", "ForeachProcess", "start_query", "totals"]

SCHEMA = "user string, number long"
DEADLINE_S = 120.0


def totals() -> Any:
    """Returns an operator that says how many records a user has, and the number of the last one."""
    from impls.operators import StatefulMap

    class Totals(StatefulMap):  # here, so that executors get it by value
        columns = ("number",)
        output_schema = "user string, n long, last long"

        def update(self, key, record, state):
            n = (state or 0) + 1
            return n, {"user": key.decode(), "n": n, "last": record["number"]}

    return Totals()


def start_query(spark: Any, folder: Path, results: Any, *, files: int = 1, kind: str = "json", **more: Any) -> Any:
    """Starts a query from FOLDER/input, some files in each epoch, or continues it."""
    import impls

    source = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", files).format(kind)
    return impls.stream(
        source.load(str(folder / "input")), key="user", operator=totals(), results=results,
        state_dir=folder / "state", checkpoint=folder / "checkpoint", bins=16, **{"workers": 2, **more},
    )  # fmt: skip


class ForeachProcess:
    """The parent's side of it."""

    def __init__(self, folder: Path, master: str = ""):
        """Starts it on FOLDER, and on a cluster's master; the query ends when the file FOLDER/stop is there."""
        paths = os.pathsep.join([str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])])
        self.log = folder / "child.log"
        with self.log.open("ab") as log:
            self.process = spawn(
                [sys.executable, __file__, str(folder), *filter(None, [master])], stderr=log, stdout=log,
                env={**os.environ, "PYTHONPATH": paths},
            )  # fmt: skip

    def await_end(self) -> int:
        """Returns the exit code."""
        return self.process.wait(DEADLINE_S)


def main(folder: Path, master: str | None = None) -> None:
    """The child: each call of the function is a line of calls.jsonl; behind it the driver dies where FOLDER/kill is."""
    import impls
    from impls.spark.session import spark_session

    def take(frame: Any, epoch: int) -> None:
        line = json.dumps([epoch, sorted(map(list, frame.collect()))])
        with (folder / "calls.jsonl").open("a") as calls:
            calls.write(line + "\n")
        if (folder / "kill").exists() and epoch >= 1:
            (folder / "kill").unlink()
            os.kill(os.getpid(), signal.SIGKILL)

    spark = spark_session([], threads=4, name="foreach", master=master)
    query = start_query(spark, folder, impls.ForeachBatch(take))
    while not (folder / "stop").exists():
        if query.ended(0.05):
            break
    query.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
