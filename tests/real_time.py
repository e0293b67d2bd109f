"""A real-time query in a process of its own, as its Spark session needs other settings than that of the other tests.

The process takes commands, a line of JSON each, and prints what they answer. Its input's end ends it.
"""

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Any

from processes import spawn

KEYS = 4096
DEADLINE_S = 120.0


class RealTimeQuery:
    """The parent's side of it."""

    def __init__(self, kafka: str, topics: tuple[str, str], folder: Path, **more: Any):
        given = {"kafka": kafka, "topics": topics, "folder": str(folder), **more}
        command = [sys.executable, __file__, json.dumps(given)]
        self.log = folder / "child.log"
        folder.mkdir(parents=True, exist_ok=True)
        paths = os.pathsep.join([str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])])
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        with self.log.open("wb") as log:
            self.process = spawn(command, stderr=log, env={**os.environ, "PYTHONPATH": paths}, **pipes)
        self._said: queue.Queue[dict[str, Any]] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        with contextlib.suppress(ValueError):  # a test that failed has closed the pipe
            for line in self.process.stdout:
                self._said.put(json.loads(line))
        self._said.put({"error": f"it has ended: {self.log.read_text()[-2000:]}"})

    def ask(self, do: str, **more: Any) -> dict[str, Any]:
        """Gives a command and returns the answer; fails when the query has."""
        self.process.stdin.write(json.dumps({"do": do, **more}) + "\n")
        self.process.stdin.flush()
        answer = self._said.get(timeout=DEADLINE_S)
        assert "error" not in answer, answer
        return answer

    def end(self) -> None:
        """Ends the process and waits for its end."""
        self.process.stdin.close()
        assert self.process.wait(DEADLINE_S) == 0, self.log.read_text()[-2000:]


def back_in_spark(do: str, frame: Any, folder: Path, handle: Any) -> dict[str, Any]:
    """Stops and releases the query, lets Spark go on with it until all is read, or reads its counts there."""
    import impls
    from impls.mechanisms.native_spark.conf import own_state_store

    native = folder / "native"
    if do == "release":
        handle.stop()
        return {"batch": impls.release(frame, folder / "checkpoint", native, partitions=3).batch}
    with own_state_store(frame.sparkSession, 3):
        if do == "go_on":
            writer = frame.writeStream.format("noop").outputMode("update").option("checkpointLocation", str(native))
            return {"ended": writer.trigger(availableNow=True).start().awaitTermination(DEADLINE_S)}
        assert do == "counts", do
        rows = frame.sparkSession.read.format("statestore").load(str(native)).collect()
        return {"counts": {row.key[0]: row.value["count"] for row in rows}}


def main(options: dict[str, Any]) -> None:
    """The child."""
    from counting_processor import SteppingCount
    from recount import First

    import impls
    from harness.run.pipeline import read_records
    from harness.setup.java import ensure_jars
    from impls.operators import DenseCount
    from impls.spark.realtime.settings import real_time_settings, real_time_threads
    from impls.spark.session import spark_session
    from impls.worker.output import Output

    slots, threads = options["slots"], real_time_threads(2, options.get("threads_for", options["slots"]))
    spark = spark_session(ensure_jars().spark, threads=threads, settings=real_time_settings())
    folder, pids, seen = Path(options["folder"]), {}, {"arrived": 0}

    def note(record: Any) -> None:
        pids.update({report.worker: report.pid for report in record.reports})
        seen["arrived"] += sum(sum(report.rates[1]) for report in record.reports)

    records = read_records(spark, options["kafka"], options["topics"][0])
    start = partial(impls.stream, records, key="key", operator=First() if options.get("recount") else DenseCount(KEYS))
    if options.get("processor"):
        start = partial(
            impls.transform_with_state, records.groupBy("key"), SteppingCount(), "key long, n long, timer boolean",
            "update", "processingtime",
        )  # fmt: skip
    if options.get("aggregate"):
        records = records.withColumnRenamed("key", "user")
        start = partial(impls.aggregate, records, ["user"], {"n": "count(*)"})
    handle = start(
        time="scheduled_us", results=Output(options["kafka"], options["topics"][1], 4),
        state_dir=folder / "state", checkpoint=folder / "checkpoint", workers=2, bins=16,
        py_files=[Path(__file__).with_name("recount.py")] if options.get("recount") else [],
        mode="real-time", real_time=impls.RealTime(slots, options["batch"]), on_epoch=note,
        control=impls.ControlTopic(options["kafka"], options["control"], "q") if "control" in options else None,
    )  # fmt: skip

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        match request["do"]:
            case "status":
                return {**handle.status(), "pids": pids, **seen, "failed": str(handle.failed or "")}
            case "rescale":
                return {"id": handle.rescale(request["workers"])}
            case "fail_router":
                threads = spark._jvm.java.lang.Thread.getAllStackTraces().keySet().toArray()
                next(thread for thread in threads if thread.getName() == "rescale-router-reads").interrupt()
                return {}
            case "await_migration":
                return {"done": handle.await_migration(DEADLINE_S)}
            case "migrated":
                return {"done": handle.await_migration(0)}
        return back_in_spark(request["do"], records.groupBy(records.columns[0]).count(), folder, handle)

    for line in sys.stdin:
        try:
            said = answer(json.loads(line))
        except Exception as error:
            said = {"error": f"{type(error).__name__}: {error}"}
        sys.stdout.write(json.dumps(said) + "\n")
        sys.stdout.flush()
    handle.stop()
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
