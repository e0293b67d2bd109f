"""A tour's query on Spark and Kafka."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from confluent_kafka import Producer
from numpy.typing import NDArray
from pyspark.sql import SparkSession

from generators.clock import now_us
from generators.keys import make_keys
from generators.stream import keycount_values
from harness.experiment.description import Experiment, Run
from harness.experiment.parameters import MICRO_BATCH, REAL_TIME
from harness.lab.topics import create_topics
from harness.oracle.commits import read_next_offsets
from harness.oracle.read import read_ranges, read_records, read_results
from harness.run.pipeline import spark_checkpoint, start_query
from harness.suites.conformance.cases import BINS, Tour, options_for, run_scenarios
from harness.suites.conformance.judge import NUMBER_OF_KEYS, Row, rows_of
from harness.suites.conformance.watch import Watch
from impls.driver.handle import StreamHandle
from impls.errors import StateError
from impls.placement import initial

_DEADLINE_S = 60.0
_FLUSH_S = 30.0
INPUT_PARTITIONS, _RESULT_PARTITIONS = 2, 4
SLOTS = 5  # the most workers that a scenario has
_SEED = 7


@dataclass(frozen=True)
class TourPlace:
    """Where a tour runs.

    Attributes:
        spark: the session, with the Kafka connector, that keeps all of Spark's offset log.
        bootstrap: broker addresses.
        name: of the topics, unique at the broker.
        redis: a server's URL, for mechanisms that need one.
        state: folder for the workers' state on each host of a cluster; by default one in the tour's folder.
        mode: how Spark runs the query.
    """

    spark: SparkSession
    bootstrap: str
    name: str
    redis: str
    state: Path | None = None
    mode: str = MICRO_BATCH


class _SparkQuery:
    """See `Query`; `with` stops it.

    A mechanism that asks for a new session gets its query started again in the same one: what a new JVM costs is
    the benchmark's to show, here it is whether the output is right.
    """

    def __init__(self, tour: Tour, folder: Path, place: TourPlace):
        """Makes the topics and starts the query; see `run_tour`."""
        self._tour, self._folder, self._place = tour, folder, place
        self._topics = f"{place.name}-in", f"{place.name}-out"
        self._options = options_for(tour.mechanism, place.redis)
        self._sampler = make_keys(tour.keys, NUMBER_OF_KEYS, 1.0, _SEED)
        self._producer = Producer({"bootstrap.servers": place.bootstrap, "enable.idempotence": True, "linger.ms": 1})
        self.sent = 0
        self.watch = Watch(tour.mechanism, self._options, initial(BINS, tour.workers))
        create_topics(place.bootstrap, dict(zip(self._topics, (INPUT_PARTITIONS, _RESULT_PARTITIONS), strict=True)))
        self._handle = self._start()

    def _start(self) -> StreamHandle:
        tour = self._tour
        preload = NUMBER_OF_KEYS // 2  # of hash: the other keys' entries are made by their first records
        experiment = Experiment(
            mechanisms=(tour.mechanism,), options=self._options, workload=tour.operator, bins=BINS,
            keys=NUMBER_OF_KEYS if tour.operator == "dense" else preload, workers=tour.workers,
            input_partitions=INPUT_PARTITIONS, result_partitions=_RESULT_PARTITIONS, slots=SLOTS,
        )  # fmt: skip
        run = Run(experiment, tour.mechanism, 0, 0, mode=self._place.mode)
        return start_query(
            self._place.spark, run, self._folder, self._place.bootstrap, self._topics,
            on_epoch=self.watch.on_epoch, on_event=lambda *_: None, state=self._place.state,
        )  # fmt: skip

    @property
    def goal(self) -> NDArray[np.int32]:
        """The assignment last commanded."""
        return self._handle.goal

    def rebalance(self, goal: NDArray[np.int32], label: str) -> None:
        """Asks for an assignment."""
        self._handle.rebalance(goal, label=label)

    def rescale(self, workers: int) -> None:
        """Asks for a number of workers; raises UsageError for too many."""
        self._handle.rescale(workers)

    def load(self, records: int) -> None:
        """Sends records, scheduled now."""
        keys = self._sampler.block(self.sent, records)
        for i, value in enumerate(keycount_values(keys, np.full(records, now_us(), np.int64)), self.sent):
            self._producer.produce(self._topics[0], value, partition=i % INPUT_PARTITIONS)
        if self._producer.flush(_FLUSH_S):
            raise TimeoutError(f"waited {_FLUSH_S:.0f} s for the broker to take {records} records")
        self.sent += records

    def await_true(self, wanted: Callable[[], bool], what: str) -> None:
        """Returns when something that the watch can tell holds, and starts the query again where it asks for it."""
        for _ in range(int(_DEADLINE_S)):
            if self.watch.await_true(wanted, 1.0):
                return
            if self._handle.wants_restart:
                self._handle.ended(_DEADLINE_S)
                self._handle = self._start()
            elif self._handle.await_end(0):  # raises what it failed with
                raise StateError(f"The query ended while it was waited for {what}.")
        raise TimeoutError(f"waited {_DEADLINE_S:.0f} s for {what}")

    def rows(self) -> list[Row]:
        """Returns the outcomes of the tour's cases; the query must have ended."""
        (taken, given), bootstrap = self._topics, self._place.bootstrap
        records, results = read_records(bootstrap, taken), read_results(bootstrap, given)
        where: dict[str, Any] = {"partitions": _RESULT_PARTITIONS, "sent": self.sent}
        if self._place.mode != REAL_TIME:
            ranges = read_ranges(spark_checkpoint(self._folder), taken)
            return rows_of(self._tour, self.watch, records, results, ranges, **where)
        own = "redis" not in self._options
        stored = read_next_offsets(self._folder / "state", self.watch.owners) if own else None
        return rows_of(self._tour, self.watch, records, results, None, stored=stored, **where)

    def __enter__(self) -> "_SparkQuery":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        del self._producer  # it would go on asking for a broker that is gone
        self._handle.__exit__(kind)


def run_tour(tour: Tour, folder: Path, place: TourPlace) -> list[Row]:
    """Runs a tour on Spark and returns its rows; the rows of a tour that fails say why, as verdict unknown.

    Its state and its checkpoint are in the folder, which must not exist.
    """
    try:
        with _SparkQuery(tour, folder, place) as query:
            run_scenarios(tour, query)
        return query.rows()
    except Exception as error:  # whatever a query fails with, the other tours go on
        why = f"{type(error).__name__}: {error}"
        return [
            Row(tour.mechanism, tour.operator, scenario, tour.keys, "unknown", 0, None, 0, 0, 0, (why,))
            for scenario in tour.scenarios
        ]
