"""A query on a control topic in a process of its own, so that it can be killed; with Spark, or with the driver alone.

Without Spark epochs are empty, and their offsets are those of the input's topic, noted as Spark notes them.
"""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from processes import spawn

from impls.controltopic.topic import TimeFinder
from impls.driver.journal import read_journal, replace_bytes
from impls.spark.source import epoch_begin

__all__ = ["ControlledProcess", "Load", "begins_of", "bounds_of", "commanded_of", "done_of"]

PARTITIONS = 2
EPOCH_S = 0.02
DEADLINE_S = 120.0


class ControlledProcess:
    """The parent's side of it."""

    def __init__(self, folder: Path, kafka: str, topics: tuple[str, str], control: str, *, spark: bool, at: str = ""):
        """Starts it; `at` is the broker of the control topic, where it is another one than that of the input."""
        given = {"folder": str(folder), "kafka": kafka, "topics": topics, "control": control, "spark": spark}
        given["at"] = at or kafka
        self.folder = folder
        self._command, self.log = [sys.executable, __file__, json.dumps(given)], folder / "child.log"
        folder.mkdir(parents=True, exist_ok=True)
        self.start()

    def start(self) -> None:
        paths = os.pathsep.join([str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])])
        with self.log.open("ab") as log:
            self.process = spawn(self._command, stderr=log, stdout=log, env={**os.environ, "PYTHONPATH": paths})

    def kill(self) -> None:
        """Kills the driver with -9."""
        self.check()
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(DEADLINE_S)

    def check(self) -> None:
        """Fails when the query has ended."""
        assert self.process.poll() is None, self.log.read_text()[-2000:]

    def await_end(self) -> None:
        """Waits until the query has ended as it was asked to."""
        assert self.process.wait(DEADLINE_S) == 0, self.log.read_text()[-2000:]


class Load:
    """Sends records from a thread, as long as it is open."""

    def __init__(self, send: Callable[[], None]):
        self._send, self._stop = send, threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(0.02):
            self._send()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def done_of(folder: Path) -> list[dict[str, Any]]:
    """What the control journal says of the rescales carried out, in their order."""
    entries = [entry["done"] for entry in read_journal(folder / "checkpoint/rescale/control.log") if "done" in entry]
    carried = (one for one in entries if one["outcome"] == "carried out" and one["do"] == "rescale")
    return sorted(carried, key=lambda one: one["number"])


def commanded_of(folder: Path) -> list[str]:
    """Ids in the control topic of the driver's commands, in their order."""
    entries = read_journal(folder / "checkpoint/rescale/commands.log")
    return [entry["id"].removeprefix("control/") for entry in entries]


def begins_of(folder: Path) -> dict[int, Any]:
    """The offsets at which each epoch began, as Spark has noted them."""
    location = folder / "checkpoint" / "spark"
    last = max(int(path.name) for path in (location / "offsets").glob("[0-9]*"))
    return {epoch: epoch_begin(location, epoch) for epoch in range(1, last + 2)}


def bounds_of(kafka: str, topic: str, commands: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The bounds of commands with a condition, asked of the broker."""
    finder, found = TimeFinder(kafka, {}), {}
    for id_, command in commands.items():
        if "time" in command.get("from", {}):
            found[id_] = finder.find(command["from"]["time"], {topic: dict.fromkeys(range(PARTITIONS), 0)})
        elif "offsets" in command.get("from", {}):
            given = command["from"]["offsets"]
            found[id_] = {name: {int(p): at for p, at in parts.items()} for name, parts in given.items()}
    finder.close()
    return found


def with_the_driver_alone(options: dict[str, Any]) -> Any:
    """Starts a query whose epochs are empty, and returns its handle."""
    from controlled import PullEverything

    from impls import catalog
    from impls.controltopic.listener import ControlListener
    from impls.controltopic.topic import ControlTopic
    from impls.driver.checkpoint import Checkpoint
    from impls.driver.driver import Driver
    from impls.driver.handle import StreamHandle
    from impls.driver.pipeline import PipelineChanges
    from impls.operators import HashCount
    from impls.protocol.controller import Controller
    from impls.spark.shipping import pickled

    opened = Checkpoint(Path(options["folder"]) / "checkpoint", {})
    controller = Controller(np.zeros(16, np.int32), catalog.make("megaphone-all-at-once"))
    driver = Driver(controller, opened, PullEverything(), files=None)
    topic = ControlTopic(options["at"], options["control"], "q", options["kafka"])
    listener = ControlListener(topic, opened, driver, partial(epoch_begin, Path(opened.spark)))
    run = partial(_run_epochs, Path(opened.spark) / "offsets", options["kafka"], options["topics"][0], driver)
    changes = PipelineChanges(driver, HashCount(), pickled, ())
    return StreamHandle(run, changes, opened, "minimal_move", None, listen=listener.start)


def _run_epochs(
    folder: Path, kafka: str, topic: str, driver: Any, epoch_of: Callable[[Any, int], None], started: Callable[[], None]
) -> Exception:
    from confluent_kafka import Consumer, TopicPartition

    from impls.driver.epochs import QueryEnded

    folder.mkdir(parents=True, exist_ok=True)
    consumer = Consumer({"bootstrap.servers": kafka, "group.id": "epochs"})
    started()
    for epoch in range(driver.last_epoch + 1, 1 << 30):
        if not (folder / str(epoch)).exists():
            places = [TopicPartition(topic, part) for part in range(PARTITIONS)]
            ends = {str(place.partition): consumer.get_watermark_offsets(place, 10)[1] for place in places}
            replace_bytes(folder / str(epoch), b"v1\n{}\n" + json.dumps({topic: ends}).encode())
        try:
            epoch_of(None, epoch)
        except QueryEnded as signal_:
            consumer.close()
            return signal_
        time.sleep(EPOCH_S)  # as long as an epoch lasts
    raise AssertionError


def with_spark(options: dict[str, Any]) -> Any:
    """Starts a query on Spark, and returns its handle."""
    from pipeline import Pipeline

    from harness.setup.java import ensure_jars
    from impls.controltopic.topic import ControlTopic
    from impls.spark.session import spark_session

    keep = {"spark.sql.streaming.minBatchesToRetain": "100000"}
    spark = spark_session(ensure_jars().spark, threads=4, name="controlled", settings=keep)
    control = ControlTopic(options["kafka"], options["control"], "q")
    folder = Path(options["folder"])
    return Pipeline(
        spark, options["kafka"], tuple(options["topics"]), folder, "megaphone-all-at-once", control=control
    ).start()


def main(options: dict[str, Any]) -> None:
    """The child: it ends when a command stops the query."""
    handle = (with_spark if options["spark"] else with_the_driver_alone)(options)
    handle.await_end()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
