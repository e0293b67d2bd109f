"""The open loop: gives each record to Kafka's client when it is due, and never waits for the system."""

import json
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from confluent_kafka import KafkaException, Producer
from hdrh.histogram import HdrHistogram
from numpy.typing import NDArray

from generators.clock import ARRIVALS_MS, ARRIVALS_MS_MAX, now_us
from generators.spec import GeneratorError
from generators.stream import Block

_HOUR_US = 3_600_000_000
_COUNTED = 8_192  # lags at a time: to count those of one sending costs more than the sending
_SUB_BITS = 11  # 2^11 sub-buckets are 3 significant digits
_OCTAVES = 33 - _SUB_BITS  # an hour has 32 bits of microseconds


class LagHistogram:
    """Counts lags of 1 microsecond to 1 hour to 3 significant digits, in the buckets of an HdrHistogram.

    Lags are counted many at a time, and the HdrHistogram itself is filled when percentiles are asked for. Negative lags
    (the wall clock was stepped back) count as 0 and in `early`, those above an hour as an hour and in `refused`.
    """

    def __init__(self, *, keep: bool = False):
        self._early = self._refused = self._max_us = 0
        self._waiting: list[NDArray[np.int64]] = []
        self._records = 0  # that wait to be counted
        self._counts = np.zeros((_OCTAVES + 1) << _SUB_BITS, np.int64)
        self._kept: list[NDArray[np.int64]] | None = [] if keep else None

    def record(self, lags_us: NDArray[np.int64]) -> None:
        """Counts the lags of some records, in microseconds."""
        if self._kept is not None:
            self._kept.append(lags_us)
        self._waiting.append(lags_us)
        self._records += len(lags_us)
        if self._records >= _COUNTED:
            self._count()

    def _count(self) -> None:
        if not self._records:
            return
        lags_us = np.concatenate(self._waiting)
        self._waiting, self._records = [], 0
        self._early += int((lags_us < 0).sum())
        self._refused += int((lags_us > _HOUR_US).sum())
        self._max_us = max(self._max_us, int(lags_us.max(initial=0)))
        lags = np.clip(lags_us, 0, _HOUR_US)
        shift = np.maximum(np.frexp(lags.astype(np.float64))[1].astype(np.int64) - _SUB_BITS, 0)
        buckets, counts = np.unique((shift << _SUB_BITS) + (lags >> shift), return_counts=True)
        self._counts[buckets] += counts

    @property
    def early(self) -> int:
        """Number of negative lags."""
        self._count()
        return self._early

    @property
    def refused(self) -> int:
        """Number of lags above an hour."""
        self._count()
        return self._refused

    def histogram(self) -> HdrHistogram:
        """Returns all lags as an HdrHistogram, in microseconds."""
        self._count()
        out = HdrHistogram(1, _HOUR_US, 3)
        for bucket in np.flatnonzero(self._counts).tolist():
            shift = bucket >> _SUB_BITS
            out.record_value((bucket & ((1 << _SUB_BITS) - 1)) << shift, int(self._counts[bucket]))
        return out

    def summary_ms(self) -> dict[str, float]:
        """Returns p50, p99, p999 and max in milliseconds; all 0 without records."""
        merged = self.histogram()
        points = {"p50": 50.0, "p99": 99.0, "p999": 99.9}
        out = {name: merged.get_value_at_percentile(at) / 1000 for name, at in points.items()}
        return {**out, "max": self._max_us / 1000}

    def save(self, path: Path) -> None:
        """Writes every lag, in the order of sending, as a numpy int64 array; needs `keep=True`."""
        lags = np.concatenate(self._kept) if self._kept else np.empty(0, np.int64)
        temporary = path.with_name(f".{path.name}.part")
        with temporary.open("wb") as file:
            np.save(file, lags)
        temporary.replace(path)


_WAIT_S_MAX = ARRIVALS_MS_MAX / 1e3
_SLAB = 500  # records between two readings of the clock
_QUEUE_RECORDS = 500_000
_LINGER_MS = 2.0  # one request a tick and partition; the client's thread spins when less than 1 ms is left of it
_CONNECT_S = 10.0


class OpenLoop:
    """run(blocks) sends until the blocks or `stop` end it; then flush(seconds) waits for what is queued.

    It wakes every `arrivals_ms` and sends what is due.

    A full client queue is waited for, never dropped from; the wait appears as lag. The first delivery that fails ends
    the loop, since a record behind the gap would take its offset; `failed` counts all of them.

    Raises:
        GeneratorError: the broker does not answer within 10 s.
    """

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        stop: threading.Event,
        lag: LagHistogram,
        progress: Path | None,
        *,
        arrivals_ms: float = ARRIVALS_MS,
    ):
        self.produced = 0
        self.failed = 0
        self.failure = ""
        self._topic, self._stop, self._lag, self._progress = topic, stop, lag, progress
        self._measured_from_us: int | None = 0
        self._tick_s = arrivals_ms / 1e3
        self._told_s = float("-inf")
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "max.in.flight": 1,  # with more its thread spins while the broker is slow, before all others here
                "linger.ms": min(max(1.0, arrivals_ms), _LINGER_MS),
                "queue.buffering.max.messages": _QUEUE_RECORDS,
                "queue.buffering.max.kbytes": 1 << 20,
                "message.timeout.ms": 120_000,
                "socket.nagle.disable": True,
                "delivery.report.only.error": True,
                "on_delivery": self._delivered,
                "log_level": 2,
            }
        )
        try:
            self._producer.list_topics(topic, timeout=_CONNECT_S)  # connects before the first record is due
        except KafkaException as error:
            raise GeneratorError(f"The broker {bootstrap} does not answer within {_CONNECT_S:g} s.") from error

    def run(self, blocks: Iterable[Block], *, measured_from_us: int | None = 0) -> None:
        """Sends the records of the blocks, each when it is due.

        Args:
            blocks: what is sent.
            measured_from_us: of records scheduled from here on the lag counts; None if of none.
        """
        self._measured_from_us = measured_from_us
        for block in blocks:
            if not self._send(block):
                break
        self._tell(force=True)

    def flush(self, seconds: float) -> int:
        """Waits for the broker's acknowledgements and returns how many records have none after that time."""
        return int(self._producer.flush(seconds)) + self.failed

    def _send(self, block: Block) -> bool:
        """Returns whether the whole block was sent."""
        at, size = 0, len(block.values)
        while at < size:
            self._producer.poll(0)
            self._tell()
            if self._stop.is_set() or self.failed:
                return False
            due = int(np.searchsorted(block.scheduled_us, now_us(), side="right"))
            end = min(due, at + _SLAB)
            if end > at:
                sent = self._produce(block, at, end)
                if self._measured_from_us is not None:  # at the slab's end: never too small
                    scheduled = block.scheduled_us[at : at + sent]
                    self._lag.record(now_us() - scheduled[scheduled >= self._measured_from_us])
                self.produced += sent
                at += sent
            if at >= due and at < size:
                ahead_s = (int(block.scheduled_us[at]) - now_us()) / 1e6
                self._stop.wait(min(max(ahead_s, self._tick_s), _WAIT_S_MAX))
        return True

    def _produce(self, block: Block, at: int, end: int) -> int:
        """Gives records at..end-1 to the client and returns how many it took before a stop or a failure."""
        produce, topic = self._producer.produce, self._topic
        for number, (value, partition) in enumerate(zip(block.values[at:end], block.partitions[at:end], strict=True)):
            while True:
                try:
                    produce(topic, value, partition=partition)
                    break
                except BufferError:
                    self._producer.poll(0.01)
                    self._tell()
                except KafkaException as error:
                    self._delivered(error.args[0], None)
                if self._stop.is_set() or self.failed:
                    return number
        return end - at

    def _delivered(self, error: Any, _message: Any) -> None:
        if error is not None:
            self.failed += 1
            self.failure = self.failure or str(error.str())

    def _tell(self, *, force: bool = False) -> None:
        """Appends a line to the progress file, once a second."""
        if self._progress is None or (time.monotonic() < self._told_s + 1 and not force):
            return
        self._told_s = time.monotonic()
        with self._progress.open("a") as file:
            file.write(json.dumps({"produced": self.produced, "at_us": now_us()}) + "\n")
