"""Another engine's count as a running query that takes the same commands as `impls.driver.handle`."""

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from generators.stream import keycount_values
from harness.experiment.description import Run
from harness.lab.engines.engine import Engine, Job, all_taken_in
from harness.lab.engines.flink import FlinkEngine
from harness.lab.engines.floor import FloorEngine
from harness.lab.engines.streams import StreamsEngine
from harness.lab.topics import admin_of, create_topics
from harness.lab.waiting import wait_for
from harness.run.pipeline import disorder_ms
from impls import catalog
from impls.driver.arrivals import asking
from impls.driver.observed import OnEvent, OnLine
from impls.errors import StateError
from impls.mechanisms.native_spark.intervals import BinlessQuery, Ends, Intervals

_POLL_S = 0.05
_FILL_DEADLINE_S = 1_200.0
_STILL_S = 2.0


class EngineQuery(BinlessQuery):
    """A job of another engine; a supervisor thread starts it, has it rescaled, and tells of intervals by its topics.

    A count has a result for every record, so results say how far it is. Of another query it is known which offsets its
    consumer group has committed: with a checkpoint, behind which all results of the records before are sent.
    """

    def __init__(
        self, engine: Engine, job: Job, *, workers: int, bins: int,
        on_epoch: OnLine,
        on_event: OnEvent,
    ):  # fmt: skip
        super().__init__(engine.name, workers, bins, on_event)
        self._engine, self._job = engine, job
        self._intervals, self._ends = Intervals(on_epoch), Ends(job.bootstrap, job.topics[0], job.results)
        self._rescaling: tuple[str, int, Future[None]] | None = None
        self._taken_in: Callable[[], bool] | None = None  # of a query that is no count
        self._settled = False
        self._base = -1  # results when a rescale was done, -1 where none waits for a result behind it
        self._ended_id = ""
        self._known, self._changed_s = (0, 0), time.monotonic()
        self._pool = ThreadPoolExecutor(1)
        self._begin(self._supervise, "external-engine")

    @property
    def _migrating(self) -> bool:
        return self._pending is not None or self._rescaling is not None or self._base >= 0

    def status(self) -> dict[str, Any]:
        """Returns interval, workers, whether a rescale is under way, whether all input has had its effect (settled)."""
        with self._lock:
            return self._status(self._intervals.number, settled=self._settled)

    def pids(self) -> dict[str, int]:
        """Returns the ids of the engine's processes."""
        return self._engine.pids()

    def kill_worker(self) -> int:
        """Kills a process that holds state with -9 and returns its id; it is started again at once."""
        return self._engine.kill_worker()

    def _supervise(self) -> None:
        try:
            self._engine.start(self._workers)
            self._await_state(admin_of(self._job.bootstrap))
            self._on_event("query_start", {"partitions": self._workers})
            while not self._stopping:
                self._engine.check()
                self._follow()
                if self._intervals.due():
                    self._tell()
                time.sleep(_POLL_S)
        except Exception as error:
            words = str(error).strip().splitlines() or [type(error).__name__]
            self._failure = StateError(f"{self._engine.name} failed: {words[0]}")
        finally:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._engine.stop()
            self._ended.set()

    def _await_state(self, admin: AdminClient) -> None:
        """Waits until what makes the state is in it."""

        def tend() -> None:
            self._engine.check()
            if self._stopping:
                raise StateError("it was stopped before its state was made")

        client = asking({"bootstrap.servers": self._job.bootstrap})

        def filled() -> bool:
            return all_taken_in(admin, client, self._job.group, self._engine.read_topics())

        wait_for(filled, f"{self._engine.name} to make the state", _FILL_DEADLINE_S, tend=tend)
        self._taken_in = filled if self._job.query else None

    def _follow(self) -> None:
        """Begins a rescale that was commanded, and sees when one is done.

        The broker is asked without the lock: whoever would start it again may wait for that.
        """
        over = self._rescaling is not None and self._rescaling[2].done()
        results = self._ends.now()[1] if over else 0
        with self._lock:
            if self._pending is not None:
                id_, workers = self._pending
                self._on_event("migration_begin", {"id": id_, "epoch": self._intervals.number + 1, "label": ""})
                if self._engine.stops:
                    self._on_event("query_stop", {})
                done = self._pool.submit(self._engine.rescale, workers)
                self._pending, self._rescaling = None, (id_, workers, done)
            elif over and self._rescaling is not None:
                id_, workers, done = self._rescaling
                done.result()
                self._on_event("query_start", {"partitions": workers})
                self._workers, self._rescaling, self._ended_id = workers, None, id_
                self._base = results

    def _tell(self) -> None:
        """Tells of the interval that ends now; the first one behind a rescale that has results ends the migration."""
        arrived, results = self._ends.now()
        if (arrived, results) != self._known:
            self._known, self._changed_s = (arrived, results), time.monotonic()
        still, counts = time.monotonic() - self._changed_s >= _STILL_S, self._taken_in is None
        self._settled = still and (results >= arrived if self._taken_in is None else self._taken_in())
        ended = None
        with self._lock:
            if self._base >= 0 and (results > self._base or results >= arrived):
                ended, self._base = self._ended_id, -1
        # repeats count, until what they repeat is passed
        done = max(min(arrived, results), self._intervals.done) if counts else arrived
        moved = (self._bins, 0) if ended is not None else (0, 0)
        self._intervals.tell(arrived, done, workers=self._workers, moved=moved, ended=ended)


_PRELOAD = "-preload"
_CHUNK = 50_000
_FLUSH_S = 300.0
_ENGINES: dict[str, Callable[[Any, Job], Engine]] = {
    "flink": FlinkEngine,
    "kafka-floor": FloorEngine,
    "kafka-streams": StreamsEngine,
}


def start_engine(
    run: Run, folder: Path, bootstrap: str, topics: tuple[str, str], *, on_epoch: OnLine, on_event: OnEvent
) -> EngineQuery:
    """Fills the topic that makes a count's state, and starts the engine's job on it and on the input topic.

    Raises:
        UsageError: the engine's programs cannot be fetched, compiled or started.
        StateError: the broker does not take the records.
    """
    experiment, place = run.experiment, (folder / "engine").resolve()
    job = Job(bootstrap, (topics[0],), topics[1], f"{topics[0]}-count", experiment.most_workers, place)
    if experiment.workload == "nexmark":
        job = replace(job, query=experiment.query, disorder_ms=disorder_ms(experiment))
    else:
        preload, partitions = topics[0] + _PRELOAD, experiment.input_partitions
        # as many as of the input: where they differ, Kafka Streams' newer protocol reads the fewer
        create_topics(bootstrap, {preload: partitions})
        _fill(bootstrap, preload, experiment.keys, partitions)
        job = replace(job, topics=(topics[0], preload))
    given = catalog.baseline(run.mechanism, **run.options())
    engine = _ENGINES[given.engine](given, job)
    return EngineQuery(
        engine, job, workers=experiment.workers, bins=experiment.bins, on_epoch=on_epoch, on_event=on_event
    )


def _fill(bootstrap: str, topic: str, keys: int, partitions: int) -> None:
    """Sends one record per key, of time 0, in key-count's form."""
    failures: list[str] = []
    settings = {"bootstrap.servers": bootstrap, "linger.ms": 50, "queue.buffering.max.messages": 4 * _CHUNK}
    producer = Producer({**settings, "delivery.report.only.error": True, "log_level": 0})

    def failed(error: Any, _: Any) -> None:
        failures.append(str(error))

    for begin in range(0, keys, _CHUNK):
        numbers = np.arange(begin, min(begin + _CHUNK, keys), dtype=np.int64)
        for number, value in enumerate(keycount_values(numbers, np.zeros(len(numbers), np.int64)), begin):
            while True:
                try:
                    producer.produce(topic, value, partition=number % partitions, on_delivery=failed)
                    break
                except BufferError:
                    producer.poll(0.1)
        producer.poll(0)
    if producer.flush(_FLUSH_S) or failures:
        raise StateError(f"The records that make the state were not taken: {(failures or ['no answer'])[0]}.")
