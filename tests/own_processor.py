"""A case's query by `impls.transform_with_state`: undisturbed, or across rescales with a worker killed in each step."""

import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cases import Case, canonical, initial_state, records
from confluent_kafka import Consumer, TopicPartition
from native_processor import Held, Progress
from pipeline import await_true
from pyspark.sql.streaming import StatefulProcessor
from stored_processor import stored_state

import impls
from impls.driver.arrivals import asking, end_offsets
from impls.worker.output import Output
from impls.worker.results import Deduplicator, number_of

BINS, WORKERS, RESULT_PARTITIONS = 16, 2, 4
RESCALED = {1: 3, 2: 1, 3: 2}  # workers from a step on


@dataclass(frozen=True)
class Variant:
    """What happens to the query while it runs: rescales as a step's records come, a worker's death in its midst."""

    name: str
    rescaled: bool = False
    killed: bool = False
    real_time: bool = False


VARIANTS = (Variant("undisturbed"), Variant("rescaled and killed", rescaled=True, killed=True))
_REAL_TIME = {"mode": "real-time", "real_time": impls.RealTime(slots=3)}


class Deadly(StatefulProcessor):
    """Another processor, that kills its process with -9 behind the first call that finds a file."""

    def __init__(self, inner: StatefulProcessor, file: str):
        self._inner, self._file = inner, file

    def init(self, handle):
        self._inner.init(handle)

    def close(self):
        self._inner.close()

    def handleInitialState(self, key, initialState, timerValues):  # noqa: N802, N803
        self._inner.handleInitialState(key, initialState, timerValues)

    def handleInputRows(self, key, rows, timerValues):  # noqa: N802, N803
        yield from self._inner.handleInputRows(key, rows, timerValues)
        self._die()

    def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):  # noqa: N802, N803
        yield from self._inner.handleExpiredTimer(key, timerValues, expiredTimerInfo)
        self._die()

    def _die(self):
        try:
            Path(self._file).unlink()
        except FileNotFoundError:
            return
        os.kill(os.getpid(), signal.SIGKILL)


class Own:
    """The query of a case in one variant; `kills` counts workers killed."""

    def __init__(self, case: Case, spark: Any, where: tuple[str, str, str], folder: Path, variant: Variant):
        self.case, self.name, self._spark, self._where, self._variant = case, variant.name, spark, where, variant
        self.kafka = where[0]
        self._folder = folder / variant.name.replace(" ", "-")
        self._folder.mkdir(parents=True)
        self.checkpoint = self._folder / "checkpoint"
        self._deadly = self._folder / "kill"
        self.progress = Progress(self.checkpoint / "spark")
        self.kills, self._workers, self._before = 0, WORKERS, -1
        self.adopted = False  # then an initial state is in it already
        self._sent = self._arrived = 0
        self.handle: Any = None
        self._results = _Results(where[0], where[2])

    def begin(self, processor: Any) -> None:
        """Starts it, or goes on with another processor; `await_begun` is to follow."""
        case, (kafka, topic, results) = self.case, self._where
        self._before, frame = (
            max(self._last(), self.progress.begun()),
            records(case, self._spark, kafka, topic, whole=not self._variant.real_time),
        )
        self._schema = frame.select(*case.key).schema
        self.handle = impls.transform_with_state(
            frame.groupBy(*case.key),
            Deadly(processor, str(self._deadly)) if self._variant.killed else processor,
            case.output, case.mode, case.time,
            initialState=None if self.adopted else initial_state(case, self._spark),
            eventTimeColumnName=case.event_time_column,
            pandas=case.pandas, results=Output(kafka, results, RESULT_PARTITIONS),
            state_dir=self._folder / "state", checkpoint=self.checkpoint, workers=WORKERS, bins=BINS,
            on_epoch=self._note, **(_REAL_TIME if self._variant.real_time else {}),
        )  # fmt: skip

    def of_class(self, processor: Any) -> str:
        """The name of the class that it gives for a processor."""
        return (Deadly if self._variant.killed else type(processor)).__name__

    def await_begun(self) -> None:
        """Waits until it has looked for records: an epoch that comes again does not."""
        await_true(lambda: self.handle.await_end(0) or self._last() > self._before, f"an epoch ({self.name})")

    def disturb(self, step: int) -> None:
        """Does what the variant asks for before a step's records come."""
        self._sent += len(self.case.chunks[step])
        if self._variant.rescaled and step in RESCALED:
            self._workers = RESCALED[step]
            self.handle.rescale(self._workers)
        if self._variant.killed:
            self._deadly.touch()

    def finish(self, total: int) -> None:
        """Waits until all that so many records give rise to is done."""
        await_true(lambda: self.handle.await_end(0) or self._has(total), f"{total} records ({self.name})")
        if self.case.time.lower() == "processingtime" and not self._variant.real_time:
            await_true(lambda: self.handle.await_end(0) or self.progress.waited(total, self.case.wait_ms), "an epoch")
        await_true(self._done, f"the end of what {total} records give rise to ({self.name}): {self.handle.status()}")
        assert self.handle.status()["workers"] == self._workers
        self.kills += self._variant.killed and not self._deadly.exists()

    def rescale_once_more(self) -> None:
        """Rescales while no records come, and waits until it is done."""
        self._workers = self._workers % 3 + 1
        self.handle.rescale(self._workers)
        await_true(lambda: self._done() and self.handle.status()["workers"] == self._workers, "another rescale")

    def _last(self) -> int:
        """The last epoch that has been done, -1 before there is one."""
        if not self._variant.real_time:
            return self.progress.last()
        return -1 if self.handle is None else int(self.handle.status()["epoch"])

    def _has(self, total: int) -> bool:
        if not self._variant.real_time:
            return self.progress.has(total)
        return self._arrived >= self._sent

    def _note(self, record: Any) -> None:
        self._arrived += sum(sum(report.rates[1]) for report in record.reports)

    def _done(self) -> bool:
        self.handle.await_end(0)
        status = self.handle.status()
        return status.get("settled", True) and not status["migrating"] and not status["queued"]

    def outputs(self) -> list[str]:
        """The outputs since the last call."""
        return sorted(map(canonical, self._results.new()))

    def stop(self) -> None:
        """Ends it; raises what it failed with."""
        if self.handle is not None and not self.handle.ended(0):
            self.handle.stop()

    def state(self, held: list[Held]) -> list[Held]:
        """What it has of the variables that Spark's own has; nobody runs it any more."""
        owners = self.handle.goal.tolist()
        return stored_state(self.case, self._folder, owners, held, self._schema)

    def close(self) -> None:
        """Frees the consumer."""
        self._results.close()


class _Results:
    """Reads a results topic, repeats removed."""

    def __init__(self, kafka: str, topic: str):
        self._consumer = Consumer({"bootstrap.servers": kafka, "group.id": "processors", "enable.auto.commit": False})
        self._places = [(topic, partition) for partition in range(RESULT_PARTITIONS)]
        self._consumer.assign([TopicPartition(*place, 0) for place in self._places])
        self._asking = asking({"bootstrap.servers": kafka})  # behind a fetch an answer waits for its end, half a second
        self._read = [0] * RESULT_PARTITIONS
        self._seen = Deduplicator()

    def new(self) -> list[bytes]:
        """Everything that was sent since the last call."""
        ends = list(end_offsets(self._asking, self._places).values())
        values: list[bytes] = []

        def reached() -> bool:
            for message in self._consumer.consume(1000, timeout=0.05):
                assert message.error() is None, message.error()
                self._read[message.partition()] = message.offset() + 1
                n = number_of(message.headers())
                if self._seen.accept(message.partition(), n):
                    values.append(message.value())
            return self._read >= ends

        await_true(lambda: all(at >= end for at, end in zip(self._read, ends, strict=True)) or reached(), "results")
        return values

    def close(self) -> None:
        self._consumer.close()
        self._asking.close()
