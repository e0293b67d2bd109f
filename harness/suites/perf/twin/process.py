"""One measurement, the program `harness.suites.perf.twin.process`, and its blocks of epochs in pairs."""

import os
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import psutil
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from harness.experiment.make import make_experiment
from harness.lab.measuring import measure_here
from harness.lab.waiting import wait_for
from harness.measure.hdr import percentiles
from harness.measure.memory import PythonWorkers, find_jvm
from harness.run.load import LoadGenerator, schedule
from harness.run.pipeline import bring_up_alone, operator_for, read_records
from harness.suites.perf.twin.query import BLOCK_EPOCHS, Alternating, TimedBlocks, TurnEpoch
from impls.errors import StateError
from impls.spark.compiled import Heartbeat
from impls.worker.output import Output


@dataclass(frozen=True)
class TurnBlock:
    """What one side did in one block; times per epoch in milliseconds.

    Attributes:
        side: live or twin; `pair`: blocks of one pair follow each other.
        backlog: whether its epochs took a given number of records each off a backlog, instead of what had arrived.
        epochs, records: how many, the block's first epoch left out.
        latency_p50_ms: median latency of their records.
        epoch_ms: mean time from one epoch's end to the next one's.
        step_cpu_ms, plan_cpu_ms, jvm_cpu_ms: processor time of the Python workers, of the driver's Python, of the JVM.
    """

    side: str
    pair: int
    backlog: bool
    epochs: int
    records: int
    latency_p50_ms: float
    epoch_ms: float
    step_cpu_ms: float
    plan_cpu_ms: float
    jvm_cpu_ms: float

    @property
    def cpu_ms(self) -> float:
        """Processor time of step and planning per epoch."""
        return self.step_cpu_ms + self.plan_cpu_ms


def ratios(blocks: Sequence[TurnBlock], measure: str) -> list[float]:
    """Returns live over twin of a measure for each pair that has both blocks, in order of pairs."""
    by_side = {
        side: {b.pair: float(getattr(b, measure)) for b in blocks if b.side == side} for side in ("live", "twin")
    }
    both = sorted(by_side["live"].keys() & by_side["twin"].keys())
    return [by_side["live"][pair] / by_side["twin"][pair] for pair in both]


_HEAVY = ("live", "twin", "checkpoint", "spark", "spark-again-*", "broker")
_READY_DEADLINE_S = 180.0
_DRAIN_DEADLINE_S = 60.0
_BACKLOG_DEADLINE_S = 300.0
_EPOCHS_PER_S = 5
_IS_LINUX = sys.platform.startswith("linux")
_SCHEDULED = 2  # the kernel's name for the clock of time on a processor, low bits of a process clock's number


@dataclass(frozen=True)
class TwinSettings:
    """One measurement: `pairs` pairs of blocks of `block_s` seconds or more, `rate` records per second on `keys` keys.

    The same records are then read again as a backlog, in blocks of 3 epochs of a fifth of a second's records each:
    an epoch's CPU goes with its records, and the side with the longer epochs has more of them at a given rate. It is
    read as often as `backlog_pairs` pairs of blocks take.
    """

    bins: int
    pairs: int
    block_s: float
    keys: int
    rate: int
    workers: int = 4
    lead_in_s: float = 6.0
    backlog_pairs: int = 30

    @property
    def epoch_records(self) -> int:
        """Records of an epoch off the backlog."""
        return self.rate // _EPOCHS_PER_S

    @property
    def pairs_per_pass(self) -> list[int]:
        """Pairs of blocks of each reading of the backlog; one suffices for as many as there are records."""
        records = self.rate * (self.lead_in_s + self.pairs * 2 * self.block_s)
        most = max(1, int(records // (2 * BLOCK_EPOCHS * self.epoch_records)))
        return [min(most, self.backlog_pairs - at) for at in range(0, self.backlog_pairs, most)]


@dataclass(frozen=True)
class EpochMark:
    """The end of an epoch: what it did, when it ended, and the processor time in s of each part so far."""

    done: TurnEpoch
    at_s: float
    step_s: float
    plan_s: float
    jvm_s: float


class _Meter:
    """Reads the processor time of the Python workers, of this process, and of the JVM."""

    def __init__(self) -> None:
        self.jvm = find_jvm(os.getpid())
        self._workers = PythonWorkers()
        self._workers.look([] if self.jvm is None else [self.jvm])
        self._gone: dict[int, float] = {}

    def mark(self, done: TurnEpoch) -> EpochMark:
        """Returns the mark of an epoch that has just ended."""
        for pid in self._workers.pids():
            self._gone[pid] = _cpu_s(pid, self._gone.get(pid, 0.0))
        jvm = _cpu_s(self.jvm, 0.0) if self.jvm else 0.0
        return EpochMark(done, time.monotonic(), sum(self._gone.values()), time.process_time(), jvm)


def _cpu_s(pid: int, last: float) -> float:
    """Returns the processor time of a process, `last` when it has ended: what it had used stays used.

    By Linux's clock of a process where there is one: the times in /proc are in steps of 10 ms, and a block's processor
    time is some 400 ms of ten processes.
    """
    try:
        if _IS_LINUX:
            return time.clock_gettime(~pid << 3 | _SCHEDULED)
        times = psutil.Process(pid).cpu_times()
    except (OSError, psutil.Error):
        return last
    return float(times.user + times.system)


def blocks_of(marks: list[EpochMark], *, backlog: bool) -> list[TurnBlock]:
    """Returns the blocks of consecutive epochs; each from the end of its first epoch, so that it pays for itself."""
    by_block: dict[int, list[EpochMark]] = defaultdict(list)
    for mark in marks:
        if mark.done.block is not None:
            by_block[mark.done.block].append(mark)
    return [_block(number, found, backlog) for number, found in sorted(by_block.items()) if len(found) >= BLOCK_EPOCHS]


def _block(number: int, marks: list[EpochMark], backlog: bool) -> TurnBlock:
    first, last, epochs = marks[0], marks[-1], len(marks) - 1
    cells = np.concatenate([mark.done.cells for mark in marks[1:]])
    (p50,) = percentiles(cells["latency_us"], cells["count"], (50.0,)).tolist()
    return TurnBlock(
        side=first.done.side,
        pair=number // 2,
        backlog=backlog,
        epochs=epochs,
        records=sum(mark.done.records for mark in marks[1:]),
        latency_p50_ms=p50 / 1e3,
        epoch_ms=(last.at_s - first.at_s) / epochs * 1e3,
        step_cpu_ms=(last.step_s - first.step_s) / epochs * 1e3,
        plan_cpu_ms=(last.plan_s - first.plan_s) / epochs * 1e3,
        jvm_cpu_ms=(last.jvm_s - first.jvm_s) / epochs * 1e3,
    )


def _measure_blocks(folder: Path, settings: TwinSettings) -> list[TurnBlock]:
    """Runs a load, then its backlog, and returns their blocks; raises StateError when a record is missing."""
    experiment = make_experiment(
        mechanism="none", name="twin", workload="hash", keys=settings.keys, rate=settings.rate, migration="none",
        bins=settings.bins, workers=settings.workers, lead_in_s=settings.lead_in_s,
        duration_s=settings.pairs * 2 * settings.block_s,
    )  # fmt: skip
    marks: list[EpochMark] = []
    with ExitStack() as stack:
        services = stack.enter_context(bring_up_alone(experiment, folder))
        broker, spark = services.broker, services.spark
        meter = _Meter()
        output = Output(broker.bootstrap, "out", experiment.result_partitions)
        sides = Alternating(
            operator_for(experiment), output, folder, workers=settings.workers, bins=settings.bins,
            on_epoch=lambda done: marks.append(meter.mark(done)),
        )  # fmt: skip
        stack.callback(sides.close)
        with _query(spark, broker.bootstrap, sides, folder / "spark") as query:
            _await(query, lambda: sides.ready, "both sides' state", _READY_DEADLINE_S)
            meter = _Meter()
            load = schedule(folder, experiment, "in")
            sides.timed = TimedBlocks(settings.block_s)
            sides.start_us = load["start_us"] + round(settings.lead_in_s * 1e6)
            missing = partial(_missing, marks, settings.pairs * 2)
            with LoadGenerator(folder, broker.bootstrap, load, resume=False, waits_for=missing) as generator:
                _await(query, generator.finished, "the load", experiment.longest_s + _DRAIN_DEADLINE_S)
            _await(query, lambda: _records(marks) >= load["records"], "the last record", _DRAIN_DEADLINE_S)
        blocks = blocks_of(marks, backlog=False)[: settings.pairs * 2]
        sides.counted = True
        before = 0
        for number, pairs in enumerate(settings.pairs_per_pass):
            marks.clear()
            epochs = pairs * 2 * BLOCK_EPOCHS
            place = folder / f"spark-again-{number}"
            with _query(spark, broker.bootstrap, sides, place, settings.epoch_records) as query:
                _await(query, partial(_reached, marks, epochs), "the backlog", _BACKLOG_DEADLINE_S)
            found = blocks_of(marks[:epochs], backlog=True)
            blocks += [replace(block, pair=block.pair + before) for block in found]
            before += pairs
    return blocks


@contextmanager
def _query(
    spark: SparkSession, bootstrap: str, sides: Alternating, checkpoint: Path, epoch_records: int | None = None
) -> Iterator[StreamingQuery]:
    records = Heartbeat(spark).added_to(read_records(spark, bootstrap, "in", epoch_records))
    writer = records.writeStream.option("checkpointLocation", str(checkpoint)).trigger(processingTime="0 seconds")
    query = writer.foreachBatch(sides.run_epoch).start()
    try:
        yield query
    finally:
        query.stop()


def _await(query: StreamingQuery, done: Callable[[], bool], what: str, within_s: float) -> None:
    wait_for(lambda: done() or not query.isActive, what, within_s)
    if query.exception() is not None:
        raise StateError(f"The query failed: {query.exception()}")


def _missing(marks: list[EpochMark], needed: int) -> str:
    """Returns which blocks a load has to go on for: on a busy machine an epoch may be longer than a block was to be."""
    found = len(blocks_of(list(marks), backlog=False))
    return "" if found >= needed else f"{found} of {needed} blocks"


def _reached(marks: list[EpochMark], epochs: int) -> bool:
    return len(marks) >= epochs


def _records(marks: list[EpochMark]) -> int:
    return sum(mark.done.records for mark in list(marks))


if __name__ == "__main__":
    sys.exit(measure_here(TwinSettings, _measure_blocks, heavy=_HEAVY))
