"""A small real pipeline for integration tests: topics, records, a query with commands, and the oracle's answer."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from topics import producer_for

import impls
from generators.clock import now_us
from generators.keys import make_keys
from generators.stream import keycount_values
from harness.files import write_json
from harness.oracle.columns import dense_bins, hash_bins
from harness.oracle.run import CheckedRun, check_run
from harness.run.pipeline import read_records, spark_checkpoint
from harness.run.recorder import Recorder
from impls.controltopic.topic import ControlTopic
from impls.driver.handle import StreamHandle
from impls.operators import DenseCount, HashCount, Operator
from impls.worker.output import Output

DEADLINE_S = 90.0


def await_true(done: Callable[[], bool], what: str, deadline_s: float = DEADLINE_S) -> None:
    """Polls until done(); fails with what it waited for."""
    end = time.monotonic() + deadline_s
    while not done():
        assert time.monotonic() < end, f"waited {deadline_s:.0f} s for {what}"
        time.sleep(0.02)


@dataclass
class Pipeline:
    """Key-count over the shared broker and session: `send` produces, `start` runs the query, `check` is the oracle."""

    spark: Any
    kafka: str
    topics: tuple[str, str]
    folder: Path
    mechanism: str
    workload: str = "dense"
    distribution: str = "uniform"
    options: dict[str, Any] = field(default_factory=dict)
    keys: int = 4096
    bins: int = 16
    workers: int = 2
    replay_epochs: int = 20
    durability: str = "process"
    sent: int = 0
    operator: Operator | None = None
    py_files: tuple[Path, ...] = ()
    handle: StreamHandle | None = None
    recorder: Recorder | None = None
    control: ControlTopic | None = None

    def send(self, records: int) -> None:
        """Produces the stream's next records, scheduled now, and waits for the acknowledgements."""
        keys = make_keys(self.distribution, self.keys, 1.0, 7).block(self.sent, records)
        values = keycount_values(keys, np.full(records, now_us(), np.int64))
        producer = producer_for(self.kafka)
        for i, value in enumerate(values, self.sent):
            producer.produce(self.topics[0], value, partition=i % 2)
        assert producer.flush(30) == 0
        self.sent += records

    def start(self) -> StreamHandle:
        """Starts the query, or continues it on the same checkpoint."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.recorder = Recorder(self.folder)
        usual = DenseCount(self.keys) if self.workload == "dense" else HashCount(self.keys // 2)
        self.handle = impls.stream(
            read_records(self.spark, self.kafka, self.topics[0]),
            key="key", time="scheduled_us", operator=self.operator or usual,
            results=Output(self.kafka, self.topics[1], 4),
            state_dir=self.folder / "state", checkpoint=self.folder / "checkpoint", workers=self.workers,
            bins=self.bins, mechanism=self.mechanism, options=self.options,
            durability=self.durability, replay_epochs=self.replay_epochs, py_files=self.py_files,
            control=self.control,
            on_epoch=self.recorder.on_epoch, on_event=self.recorder.event,
        )  # fmt: skip
        return self.handle

    def await_migration(self, deadline_s: float = 60.0) -> bool:
        """Waits until no migration is under way; a query that wants a new session is started again in this one."""
        assert self.handle is not None
        done = self.handle.await_migration(deadline_s)
        if self.handle.wants_restart:
            assert self.handle.ended(deadline_s), f"waited {deadline_s} s for the query to end"
            done = self.start().await_migration(deadline_s)
        return done

    def applied(self) -> int:
        """Records applied, over all starts of the query."""
        lines = {e["epoch"]: e["records"] for e in self.epochs()}
        return sum(lines.values())

    def await_applied(self) -> None:
        """Waits until every record sent is applied."""

        def done() -> bool:
            assert self.handle is not None
            self.handle.await_end(0)
            return self.applied() >= self.sent

        await_true(done, f"{self.sent} records to be applied")

    def epochs(self) -> list[dict[str, Any]]:
        """Lines of epochs.jsonl."""
        text = (self.folder / "epochs.jsonl").read_text()
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def stop(self) -> None:
        """Stops the query."""
        assert self.handle is not None
        assert self.recorder is not None
        self.handle.stop()
        self.recorder.close()

    def check(self, migrations: int) -> dict[str, Any]:
        """Returns the oracle's answer for all that was sent."""
        write_json(self.folder / "generator.json", {"records": self.sent})
        bin_of = dense_bins(self.keys, self.bins) if self.workload == "dense" else hash_bins(self.bins)
        return check_run(
            CheckedRun(self.kafka, self.folder, bin_of, migrations, self.topics), spark_checkpoint(self.folder)
        )

    def assert_valid(self, migrations: int) -> None:
        """Fails unless the oracle finds all results right."""
        answer = self.check(migrations)
        assert answer["verdict"] == "valid", answer
