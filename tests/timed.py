"""Queries on event time under the real driver and real workers, without Spark and Kafka: epochs, moves, restarts."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from inprocess import InProcessExecutor
from memory import RESULTS, MemoryOutput

from impls import catalog
from impls.driver.checkpoint import Checkpoint
from impls.driver.driver import Driver
from impls.driver.epochs import EpochRecord, StopNeeded
from impls.driver.keystate import StateRow
from impls.durability.files import Files
from impls.durability.schedule import REPLAY_EPOCHS
from impls.operators import Operator
from impls.operators.timed import clock_of
from impls.placement import initial
from impls.protocol.controller import Controller
from impls.protocol.eventtime import EventClock
from impls.reading.points import PointReader
from impls.reading.state import read_state
from impls.reading.texts import json_text
from impls.store.environment import store_path, wipe
from impls.store.hashing import bin_of_hash, hash_bytes, hash_int64
from impls.worker.attempts import run_epoch
from impls.worker.query import QuerySpec, Task
from impls.worker.results import Deduplicator, Number

BINS = 16
_open: dict[int, Checkpoint] = {}


@dataclass
class TimedRun:
    """`epoch(rows)` runs one epoch on rows of (partition, key, columns); results are read like a topic.

    Keys are integers or bytes; `columns` of the operator come out of each row's dictionary, None where it has none.
    """

    folder: Path
    operator: Operator
    mechanism: str = "megaphone-batched"
    workers: int = 2
    attempts: int = 1
    options: dict[str, Any] = field(default_factory=dict)
    key: str = "binary"
    log_dir: str = ""
    replay_epochs: int = REPLAY_EPOCHS
    offset: int = 0
    number: int = -1
    records: list[EpochRecord] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        """Starts the driver on its checkpoint, for the first time or again."""
        settings = {"bins": BINS, "key": "key", "changelog": True, "state": "own"}
        self.checkpoint = Checkpoint(self.folder / "checkpoint", settings)
        self.checkpoint.keep_form(self.operator.state_form(), self.key)
        _open[id(self)] = self.checkpoint
        controller = Controller(
            initial(BINS, self.workers, "contiguous"), catalog.make(self.mechanism, **self.options), self.clock()
        )
        files = Files(self.log_dir or str(self.checkpoint.own))
        output, state = MemoryOutput(str(self.folder)), str(self.folder / "state")
        self.spec = spec = QuerySpec(self.checkpoint.query, controller.bins, self.operator, output, state, files)
        executor = InProcessExecutor(spec, self.step)
        driving = {"files": files, "replay_epochs": self.replay_epochs, "on_epoch": self.records.append}
        self.driver = Driver(controller, self.checkpoint, executor, **driving)

    def clock(self) -> EventClock | None:
        """Returns the clock of a query that reads the input itself."""
        return clock_of(self.operator, BINS)

    def step(self, task: Task, tables: list[pa.Table]) -> Any:
        """A worker's step, as often as its attempts are."""
        return [run_epoch(replace(task, attempt=attempt), tables) for attempt in range(self.attempts)][-1]

    def restart(self) -> None:
        """Ends the driver as the death of its process does, and starts it again."""
        self.checkpoint.close()
        self.start()

    def lose(self, worker: int) -> None:
        """Deletes a worker's environment."""
        path = store_path(self.folder / "state", worker)
        if path.exists():
            wipe(path)

    def move(self, goal: Sequence[int]) -> None:
        """Commands a goal."""
        self.driver.command("rebalance", np.array(goal, np.int32), "moved")

    @property
    def controller(self) -> Controller:
        return self.driver.controller

    @property
    def size(self) -> int:
        """Bytes of state."""
        return int(self.controller.size.sum())

    def epoch(self, rows: Sequence[tuple[int, int, dict[str, Any]]] = ()) -> EpochRecord:
        """Runs the next epoch."""
        self.number += 1
        table = self.table(rows)
        try:
            self.driver.run_epoch(table, self.number)
        except StopNeeded as stop:
            self.driver.stopped(stop.epoch)
            self.restart()
            self.driver.run_epoch(table, self.number)
        return self.records[-1]

    def again(self, rows: Sequence[tuple[int, int, dict[str, Any]]]) -> None:
        """Runs the last epoch again, as Spark does when the driver died before Spark's commit."""
        self.offset -= len(rows)
        self.driver.run_epoch(self.table(rows), self.number)

    def table(self, rows: Sequence[tuple[int, int, dict[str, Any]]]) -> pa.Table:
        texts = bool(rows) and isinstance(rows[0][1], bytes)
        keys = np.array([0 if texts else key for _, key, _ in rows], np.int64)
        hashes = np.array([hash_bytes(key) for _, key, _ in rows], np.uint64) if texts else hash_int64(keys)
        offsets = np.arange(self.offset, self.offset + len(rows))
        self.offset += len(rows)
        long = self.operator.key_type == "long"
        names = [key for _, key, _ in rows] if texts else keys.astype(">i8").view("V8").tolist() if len(keys) else []
        table = pa.table(
            {
                "bin": pa.array(bin_of_hash(hashes, BINS) if len(keys) else [], pa.int32()),
                "partition": pa.array([partition for partition, _, _ in rows], pa.int32()),
                "offset": pa.array(offsets, pa.int64()),
                "time": pa.array(np.zeros(len(rows)), pa.int64()),
                "key": pa.array(keys, pa.int64()) if long else pa.array(names, pa.binary()),
            }
        )
        for name in self.operator.columns:
            cells = [row.get(name) for _, _, row in rows]
            text = any(isinstance(cell, str) for cell in cells)
            kind = pa.binary() if any(isinstance(c, bytes) for c in cells) else pa.string() if text else pa.int64()
            table = table.append_column(name, pa.array(cells, kind))
        return table

    def settle(self, most: int = 60) -> None:
        """Runs epochs without records until no migration is under way and the clock is settled."""
        for _ in range(most):
            clock = self.controller.clock
            queued = bool(self.controller.queued.any())
            if not self.controller.migrating and not queued and (clock is None or clock.settled):
                return
            self.epoch()
        raise AssertionError(f"not settled after {most} epochs")

    def results(self) -> list[Any]:
        """Returns the payloads of the results once each, in the order of the topic."""
        seen = Deduplicator()
        return [
            json.loads(value)
            for worker, epoch, index, _, value in RESULTS[str(self.folder)]
            if seen.accept(0, Number(0, worker, 0, epoch, index))
        ]

    def multiset(self) -> Counter[str]:
        """Returns the results as a multiset."""
        return Counter(json.dumps(value, sort_keys=True) for value in self.results())

    def total(self, name: str) -> int:
        """Returns the sum of a number of all reports that event time has."""
        return sum(getattr(report.event_time, name) for record in self.records for report in record.reports)


def read_both_ways(run: TimedRun) -> pd.DataFrame:
    """Returns all of a query's state from its checkpoint; looked at key by key, its environments have the same."""
    frame = read_state(run.folder / "checkpoint")
    reader = PointReader(run.driver, run.checkpoint, run.spec, in_sql=int)
    rows: dict[str, list[StateRow]] = {}
    for row in map(StateRow._make, frame.itertuples(index=False)):
        rows.setdefault(repr(row.key), []).append(row)
    for of_key in rows.values():
        key = of_key[0].key
        if "\\x" not in str(key):  # what is no text cannot be named as a text
            state = reader.get_many([key])[0]
            assert sorted(map(repr, state.rows)) == sorted(map(repr, of_key))
            assert (json_text(key), frame.attrs["epoch"]) == (json_text(state.key), state.epoch)
            assert reader.as_json(json_text(key))["rows"], f"{json_text(key)} names the key"
    return frame


def close_all() -> None:
    """Closes the checkpoints of all runs; to be called behind every test."""
    while _open:
        _open.popitem()[1].close()


def spread(seed: int, workers: int) -> list[int]:
    """Returns a random goal."""
    return np.random.default_rng(seed).integers(0, workers, BINS).tolist()
