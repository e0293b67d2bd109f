"""Part processor: the same StatefulProcessor by Spark's own transformWithState and by this runtime.

Each side has topics of its own with the same records. Its query is started for a block and stopped behind it, so that
the other side's has the machine to itself.
"""

import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import orjson
from confluent_kafka import Consumer, TopicPartition
from numpy.typing import NDArray
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from harness.experiment.make import make_experiment
from harness.lab.bringup import bring_up, open_session
from harness.lab.measuring import measure_here, measured_in_child
from harness.lab.topics import create_topics
from harness.lab.waiting import wait_for
from harness.measure.hdr import percentiles
from harness.run.load import LoadGenerator, schedule
from harness.run.pipeline import send_keys
from harness.suites.perf.part import Check, Part, PartResult, Scale, Spread, Table
from harness.suites.perf.processor.sides import SIDES, SidePlace, running
from impls.errors import StateError

_CHUNK = 50_000
_ASK_S = 10.0


@dataclass(frozen=True)
class _ResultTimes:
    """Of each result when the broker appended it, and the scheduled time of its record."""

    appended_ms: NDArray[np.int64]
    scheduled_us: NDArray[np.int64]


class _Received:
    """Reads a results topic of the counter; take() raises what `check_counts` does.

    Attributes:
        counted: results taken.
    """

    def __init__(self, bootstrap: str, topic: str, partitions: int):
        settings = {"bootstrap.servers": bootstrap, "group.id": topic, "enable.auto.commit": False, "log_level": 0}
        self._consumer = Consumer(settings)
        self._next = dict.fromkeys(range(partitions), 0)
        self._topic, self.counted = topic, 0
        self._counts: dict[int, list[int]] = defaultdict(list)

    def there(self) -> int:
        """Returns how many results the topic has."""
        return sum(self._ends().values())

    def _ends(self) -> dict[int, int]:
        places = {number: TopicPartition(self._topic, number) for number in self._next}
        return {n: int(self._consumer.get_watermark_offsets(place, _ASK_S)[1]) for n, place in places.items()}

    def close(self) -> None:
        """Frees the consumer."""
        self._consumer.close()

    def skip(self) -> None:
        """Passes over all results there are, those that made the state: a count of 1 for each key."""
        self._next = self._ends()

    def take(self) -> _ResultTimes:
        """Returns the results since the last call."""
        ends, appended, scheduled = self._ends(), [], []
        self._consumer.assign([TopicPartition(self._topic, number, at) for number, at in self._next.items()])
        while any(self._next[number] < end for number, end in ends.items()):
            for message in self._consumer.consume(_CHUNK, 1.0):
                if message.error() is not None:
                    raise StateError(f"The results of {self._topic} cannot be read: {message.error()}.")
                value = orjson.loads(message.value())
                self._counts[value["key"]].append(value["count"])
                appended.append(message.timestamp()[1])
                scheduled.append(value["scheduled_us"])
                self._next[message.partition()] = message.offset() + 1
        self.counted += len(appended)
        check_counts(self._topic, self._counts)
        return _ResultTimes(np.array(appended, np.int64), np.array(scheduled, np.int64))


def check_counts(topic: str, counts: Mapping[int, Sequence[int]]) -> None:
    """Raises StateError unless each key's counts go on one by one behind the 1 that made its state."""
    for key, found in counts.items():
        if sorted(found) != list(range(2, len(found) + 2)):
            raise StateError(f"The counts of key {key} in {topic} are {sorted(found)[:10]}, not 2, 3, ...")


_HEAVY = ("state-*", "broker")
_FILL_DEADLINE_S = 1_200.0
_DEADLINE_S = 300.0
_PARTITIONS = 4


@dataclass(frozen=True)
class ProcessorSettings:
    """One measurement on `keys` keys.

    Attributes:
        rounds: blocks of each side.
        epochs: of a backlog that a block works off first, of `epoch_records` records each.
        rate, seconds: of the steady load that follows, behind `lead_in_s`.
        workers: of each side.
    """

    keys: int
    rounds: int
    epochs: int
    epoch_records: int
    rate: int
    seconds: float
    lead_in_s: float = 4.0
    workers: int = 2


@dataclass(frozen=True)
class RoundResult:
    """What one side did in a round.

    Attributes:
        side: "Spark" or "live".
        throughput: records per second off the backlog.
        p50_ms, p99_ms: latency at the steady rate.
        records: of both loads.
    """

    side: str
    round: int
    throughput: float
    p50_ms: float
    p99_ms: float
    records: int


def throughput(times_ms: NDArray[np.int64], epoch_records: int) -> float:
    """Returns records per second of a backlog by the times of its results, from the end of the first epoch on.

    >>> throughput(np.array([9, 10, 10, 30, 40, 60]), 3)
    60.0
    """
    ordered = np.sort(times_ms)
    return float((len(ordered) - epoch_records) * 1e3 / (ordered[-1] - ordered[epoch_records - 1]))


@dataclass
class _Side:
    """One side's topics, query and results."""

    name: str
    place: SidePlace
    received: _Received
    spark: SparkSession
    settings: ProcessorSettings
    sent: int = 0

    def fill(self) -> None:
        """Makes the state: one record per key."""
        self._send(self.settings.keys)
        with running(self.name, self.spark, self.place) as check:
            self._await(check, "one record per key", _FILL_DEADLINE_S)
        self.received.skip()

    def block(self, number: int, folder: Path) -> RoundResult:
        """Works off a backlog, and then the records of a steady load as they come."""
        wanted = self.settings
        drawn = F.pmod(F.xxhash64(F.col("id"), F.lit(number)), F.lit(wanted.keys))
        self._send(wanted.epochs * wanted.epoch_records, drawn)
        with running(self.name, self.spark, self.place) as check:
            self._await(check, "the backlog's last result", _DEADLINE_S)
            rate = throughput(self.received.take().appended_ms, wanted.epoch_records)
            begin_us = self._steady(check, number, folder)
        found = self.received.take()
        timed = found.scheduled_us >= begin_us
        latency_us = found.appended_ms[timed] * 1000 - found.scheduled_us[timed]
        p50, p99 = percentiles(np.maximum(latency_us, 1), np.ones(len(latency_us), np.int64), (50.0, 99.0)).tolist()
        return RoundResult(self.name, number, rate, p50 / 1e3, p99 / 1e3, self.received.counted)

    def _steady(self, check: Callable[[], None], number: int, folder: Path) -> int:
        """Runs the steady load to its last result, and returns when its lead-in ends."""
        wanted = self.settings
        experiment = make_experiment(
            mechanism="none", name="processor", workload="hash", keys=wanted.keys, rate=wanted.rate, migration="none",
            workers=wanted.workers, lead_in_s=wanted.lead_in_s, duration_s=wanted.seconds, seed=number + 1,
            input_partitions=_PARTITIONS,
        )  # fmt: skip
        load = schedule(folder, experiment, self.place.topics[1 + number])
        with LoadGenerator(folder, self.place.bootstrap, load, resume=False) as generator:
            wait_for(generator.finished, "the load", wanted.lead_in_s + wanted.seconds + _DEADLINE_S, tend=check)
        self.sent += load["records"]
        self._await(check, "the load's last result", _DEADLINE_S)
        return int(load["start_us"] + wanted.lead_in_s * 1e6)

    def _await(self, check: Callable[[], None], what: str, deadline_s: float) -> None:
        wait_for(lambda: self.received.there() >= self.sent, f"{what} ({self.name})", deadline_s, tend=check)

    def _send(self, records: int, key: Column | None = None) -> None:
        send_keys(self.spark, self.place.bootstrap, self.place.topics[0], records, key)
        self.sent += records


def _measure(folder: Path, settings: ProcessorSettings) -> list[RoundResult]:
    """Runs both sides' blocks in turns, each pair in the other order than the one before."""
    session = partial(open_session, "processor", settings.workers)
    with bring_up(folder, session=session) as services:
        sides = [_side(name, folder, services.broker.bootstrap, services.spark, settings) for name in SIDES]
        try:
            for side in sides:
                side.fill()
            return [
                side.block(number, folder / f"{number:02d}-{side.name}")
                for number in range(settings.rounds)
                for side in sides[:: 1 if number % 2 else -1]
            ]
        finally:
            for side in sides:
                side.received.close()


def _side(name: str, folder: Path, bootstrap: str, spark: SparkSession, settings: ProcessorSettings) -> _Side:
    topics = tuple(f"in-{name}-{number}" for number in range(1 + settings.rounds))
    place = SidePlace(
        bootstrap, topics, f"out-{name}", _PARTITIONS, folder / f"state-{name}", settings.workers,
        settings.epoch_records,
    )  # fmt: skip
    create_topics(bootstrap, dict.fromkeys(topics, _PARTITIONS))
    create_topics(bootstrap, {place.results: _PARTITIONS}, broker_time=True)
    return _Side(name, place, _Received(bootstrap, place.results, _PARTITIONS), spark, settings)


_THROUGHPUT_BOUND, _LATENCY_BOUND = 1.5, 1.0
_MEASURES = {"records/s off a backlog": "throughput", "latency p50, ms": "p50_ms", "latency p99, ms": "p99_ms"}
_CHILD_DEADLINE_S = 2_400.0  # of which most goes to the state: Spark takes some round trips per key


def _measure_part(folder: Path, scale: Scale) -> PartResult:
    """Measures both sides in turns: a backlog, then a steady load; a counting processor over rows, 1 M keys."""
    settings = ProcessorSettings(
        keys=scale.pick(1_000_000, 2_000), rounds=scale.pick(3, 1), epochs=scale.pick(6, 3),
        epoch_records=scale.pick(10_000, 1_000), rate=scale.pick(1_500, 200), seconds=scale.pick(20.0, 4.0),
    )  # fmt: skip
    found = measured_in_child("harness.suites.perf.processor.process", folder, settings, deadline_s=_CHILD_DEADLINE_S)
    return findings([RoundResult(**block) for block in found], settings)


def findings(blocks: list[RoundResult], settings: ProcessorSettings) -> PartResult:
    """Returns the table and the checks of both sides' blocks."""
    ratios = {name: _ratio(blocks, field) for name, field in _MEASURES.items()}
    rows = [
        [name, *(_of(blocks, side, field).text() for side in SIDES), str(ratios[name])]
        for name, field in _MEASURES.items()
    ]
    table = Table(
        "The same processor on both", ("measure", "Spark's own, rows", "this runtime", "ratio"), rows,
        f"A running count that sends a row per record; {settings.keys:,} keys, {settings.workers} partitions or "
        f"workers. The backlog: epochs of {settings.epoch_records:,} records, without the first one. Latencies: "
        f"{settings.rate:,} records/s, up to the broker's time of each result.",
    )  # fmt: skip
    return PartResult([table], _checks(ratios))


def _of(blocks: list[RoundResult], side: str, field: str) -> Spread:
    return Spread(tuple(float(getattr(block, field)) for block in blocks if block.side == side))


def _ratio(blocks: list[RoundResult], field: str) -> Spread:
    live, spark = (sorted((b for b in blocks if b.side == side), key=lambda b: b.round) for side in ("live", "Spark"))
    return Spread(tuple(getattr(a, field) / getattr(b, field) for a, b in zip(live, spark, strict=True)))


def _checks(ratios: dict[str, Spread]) -> list[Check]:
    throughput, latency = ratios["records/s off a backlog"].values, ratios["latency p99, ms"].values
    return [
        Check.of(
            "throughput of a processor, this runtime over Spark's own", throughput, _THROUGHPUT_BOUND, at_most=False
        ),
        Check.of("latency p99 of a processor, this runtime over Spark's own", latency, _LATENCY_BOUND, at_most=True),
    ]


PART = Part("processor", "A StatefulProcessor on both", 15, _measure_part)


if __name__ == "__main__":
    sys.exit(measure_here(Path(sys.argv[1]), ProcessorSettings, _measure, heavy=_HEAVY))
