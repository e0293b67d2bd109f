"""Part adopted: how long Spark's own state takes to be taken over, and what the rescale that follows costs.

Spark's own `groupBy().agg()` counts one record per key and is stopped; its checkpoint is adopted; the adopted query
runs a steady load and is rescaled in the midst of it.
"""

import sys
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from generators.clock import now_us
from harness.experiment.description import Experiment
from harness.experiment.make import make_experiment
from harness.lab.bringup import Services, bring_up, open_session
from harness.lab.measuring import measure_here, measured_in_child
from harness.lab.waiting import wait_for
from harness.measure.cpu import machine
from harness.measure.memory import MemorySampler
from harness.oracle import read
from harness.oracle.columns import OracleError, Placed
from harness.results.entry import RunFiles, run_entry
from harness.run.load import LoadGenerator, schedule
from harness.run.pipeline import read_records, send_keys
from harness.run.recorder import Recorder
from harness.suites.perf.part import Check, Part, PartResult, Scale, Spread, Table
from impls.adoption.adopting import Adopted, adopt
from impls.aggregation import aggregate
from impls.driver.handle import StreamHandle
from impls.errors import StateError
from impls.mechanisms.native_spark.conf import own_state_store
from impls.worker.output import Output

_TOPIC_DEADLINE_S = 300.0


@dataclass(frozen=True, slots=True)
class CountResults(Placed):
    """Results: a key and how many records it has had."""

    key: NDArray[np.int64]
    n: NDArray[np.int64]


def check_topics(bootstrap: str, load: str, results: str, keys: int) -> int:
    """Checks all results of a query whose state was one record per key, and returns how many there are.

    Raises:
        StateError: a count is wrong, is there twice or is missing, or a topic cannot be read.
    """
    try:
        records = read.read_records(bootstrap, load, deadline_s=_TOPIC_DEADLINE_S)
        counts = read.read_columns(CountResults, bootstrap, results, _TOPIC_DEADLINE_S, _columns)
    except OracleError as error:
        raise StateError(str(error)) from error
    check(records.key, counts, keys)
    return len(counts)


def _columns(messages: list[Any]) -> dict[str, NDArray[Any]]:
    rows = [orjson.loads(message.value) for message in messages]
    return {name: np.array([row[field] for row in rows], np.int64) for name, field in (("key", "item"), ("n", "n"))}


def check(records: NDArray[np.int64], results: CountResults, keys: int) -> None:
    """Raises StateError unless the counts of each key ascend from result to result, and end at all of its records.

    Args:
        records: keys of the records since the adoption, shape (N,).
        results: the results since then.
        keys: keys are 0 to keys - 1, each with one record before the adoption.
    """
    order = np.lexsort((np.arange(len(results)), results.key))
    key, n = results.key[order], results.n[order]
    again = (key[1:] == key[:-1]) & (n[1:] <= n[:-1])
    if again.any():
        at = int(np.flatnonzero(again)[0])
        raise StateError(f"Key {key[at]} had count {n[at]} and then {n[at + 1]}.")
    wanted = np.bincount(records, minlength=keys) + 1
    last = np.ones(keys, np.int64)
    last[key] = n  # the last one of each key holds
    if (wrong := np.flatnonzero(last != wanted)).size:
        first = int(wrong[0])
        raise StateError(f"{wrong.size} keys have a wrong count: key {first} has {last[first]}, not {wanted[first]}.")


_HEAVY = ("native", "checkpoint", "state", "broker")
_BEFORE, _LOAD, _RESULTS = "before", "in", "out"
_AGGREGATES = {"n": "count(*)"}
_MECHANISM, _KEY = "megaphone-batched", "item"
_FILL_DEADLINE_S = 600
_DEADLINE_S = 180.0


@dataclass(frozen=True)
class AdoptedSettings:
    """One adoption of `keys` keys, and a rescale from `workers` to `goal` under `rate` records/s.

    Attributes:
        steady_s: from the end of the lead-in of `lead_in_s` to the rescale.
        after_s: from there to the end of the load.
    """

    keys: int
    rate: int
    workers: int
    goal: int
    lead_in_s: float
    steady_s: float
    after_s: float


@dataclass(frozen=True)
class Adoption:
    """What an adoption took, and the rescale behind it.

    Attributes:
        entries: of state.
        seconds: of the adoption.
        peak_ms, peak_ratio: as of a run's migration.
        p50_ms, p99_ms: latency before it.
        results: checked, all right.
        machine: busy or quiet during the load.
    """

    entries: int
    seconds: float
    peak_ms: float
    peak_ratio: float
    p50_ms: float
    p99_ms: float
    results: int
    machine: str


@dataclass(frozen=True)
class _Bench:
    """Where one adoption is measured."""

    folder: Path
    settings: AdoptedSettings
    experiment: Experiment
    services: Services

    @property
    def bootstrap(self) -> str:
        """The broker's address."""
        return self.services.broker.bootstrap

    def records(self) -> DataFrame:
        """Returns the stream of the records that make the state, and of the load."""
        records = read_records(self.services.spark, self.bootstrap, f"{_BEFORE},{_LOAD}")
        return records.withColumnRenamed("key", _KEY)

    def run_native(self) -> None:
        """Runs Spark's own query on one record per key, and ends it."""
        send_keys(self.services.spark, self.bootstrap, _BEFORE, self.settings.keys)
        with own_state_store(self.services.spark, self.settings.workers):
            counts = self.records().groupBy(_KEY).agg(F.count("*").alias("n"))
            stream = counts.writeStream.format("noop").outputMode("update")
            stream = stream.option("checkpointLocation", str(self.folder / "native")).trigger(availableNow=True)
            if not stream.start().awaitTermination(_FILL_DEADLINE_S):
                raise StateError(f"Spark's own query took more than {_FILL_DEADLINE_S} s to make its state.")

    def adopt(self) -> Adopted:
        """Takes its state over."""
        return adopt(
            self.services.spark, self.folder / "native", self.folder / "checkpoint", bootstrap=self.bootstrap,
            aggregates=_AGGREGATES, bins=self.experiment.bins, workers=self.settings.workers,
        )  # fmt: skip

    def live(self, recorder: Recorder) -> StreamHandle:
        """Starts the adopted query."""
        return aggregate(
            self.records(), [_KEY], _AGGREGATES,
            results=Output(self.bootstrap, _RESULTS, self.experiment.result_partitions),
            state_dir=self.folder / "state", checkpoint=self.folder / "checkpoint", workers=self.settings.workers,
            bins=self.experiment.bins, mechanism=_MECHANISM, time="scheduled_us", on_epoch=recorder.on_epoch,
            on_event=recorder.event,
        )  # fmt: skip

    def follow(self, handle: StreamHandle, recorder: Recorder) -> None:
        """Sends the load, rescales in its midst, and returns when everything is applied."""

        def check() -> None:
            handle.await_end(0)

        wait = partial(wait_for, tend=check)
        wait(lambda: recorder.epochs > 0, "the first epoch", _DEADLINE_S)
        load = schedule(self.folder, self.experiment, _LOAD)
        rescale_us = load["start_us"] + round((self.settings.lead_in_s + self.settings.steady_s) * 1e6)
        memory, broker = self.folder / "memory.jsonl", self.services.broker.pid
        with (
            LoadGenerator(self.folder, self.bootstrap, load, resume=False) as generator,
            MemorySampler(memory, broker_pid=broker, generator_pid=generator.pid),
        ):
            wait(lambda: now_us() >= rescale_us, "the time of the rescale", self.settings.steady_s + _DEADLINE_S)
            handle.rescale(self.settings.goal)
            wait(generator.finished, "the load", self.settings.after_s + _DEADLINE_S)
            recorder.event("load_end")
            wait(lambda: recorder.records >= load["records"], "the last record", _DEADLINE_S)
            wait(lambda: not handle.status()["migrating"], "the rescale", _DEADLINE_S)


def _measure(folder: Path, settings: AdoptedSettings) -> list[Adoption]:
    experiment = make_experiment(
        mechanism=_MECHANISM, name="adopted", workload="hash", keys=settings.keys, rate=settings.rate,
        migration="none", workers=settings.goal, lead_in_s=settings.lead_in_s,
        duration_s=settings.steady_s + settings.after_s,
    )  # fmt: skip
    topics = {_BEFORE: settings.workers, _LOAD: experiment.input_partitions, _RESULTS: experiment.result_partitions}
    with bring_up(folder, session=partial(open_session, "adopted", settings.goal), topics=topics) as services:
        bench = _Bench(folder, settings, experiment, services)
        bench.run_native()
        adopted = bench.adopt()
        with closing(Recorder(folder)) as recorder, bench.live(recorder) as handle:
            bench.follow(handle, recorder)
        results = check_topics(services.broker.bootstrap, _LOAD, _RESULTS, settings.keys)
    return [_read_adoption(folder, adopted, results)]


def _read_adoption(folder: Path, adopted: Adopted, results: int) -> Adoption:
    files = RunFiles(folder)
    entry = run_entry(files)
    ((migration,), steady) = entry["migrations"], entry["latency_ms"]["steady"]
    if migration["peak_ratio"] is None:
        raise StateError("The rescale has no peak: no steady part came before it, or no record was on its way.")
    return Adoption(
        adopted.entries, adopted.seconds, migration["peak_ms"], migration["peak_ratio"], steady["p50"], steady["p99"],
        results, machine(files.taken),
    )  # fmt: skip


_SECONDS_BOUND, _PEAK_BOUND = 30.0, 1.25
_ROUNDS = 3
_MEASURES = {
    "adoption, s": ("seconds", 1),
    "latency p50 before, ms": ("p50_ms", 0),
    "latency p99 before, ms": ("p99_ms", 0),
    "peak of the rescale, ms": ("peak_ms", 0),
    "peak ratio": ("peak_ratio", 2),
}


def _measure_part(folder: Path, scale: Scale) -> PartResult:
    """Adopts the state of Spark's own count, 1 M keys, and rescales the query that goes on, 2 to 4 workers."""
    settings = AdoptedSettings(
        keys=scale.pick(1_000_000, 2_000), rate=scale.pick(5_000, 500), workers=2, goal=4,
        lead_in_s=scale.pick(8.0, 4.0), steady_s=scale.pick(15.0, 5.0), after_s=scale.pick(15.0, 6.0),
    )  # fmt: skip
    measured = [
        measured_in_child("harness.suites.perf.adopted", folder / f"r{number}", settings)
        for number in range(scale.pick(_ROUNDS, 1))
    ]
    return findings([Adoption(**fields) for (fields,) in measured], settings)


def findings(rounds: list[Adoption], settings: AdoptedSettings) -> PartResult:
    """Returns the table and the checks of some rounds."""
    spreads = {
        name: Spread(tuple(getattr(adoption, field) for adoption in rounds)) for name, (field, _) in _MEASURES.items()
    }
    rows = [[name, spreads[name].text(digits)] for name, (_, digits) in _MEASURES.items()]
    busy = sum(adoption.machine == "busy" for adoption in rounds)
    table = Table(
        "A query of Spark's own, adopted and rescaled", ("measure", "median (range)"), rows,
        f"`groupBy().agg(count)`, {settings.keys:,} keys, {settings.rate:,} records/s, {settings.workers} to "
        f"{settings.goal} workers, megaphone-batched; {len(rounds)} rounds, {busy} of them on a busy machine. All "
        f"{sum(adoption.results for adoption in rounds):,} results were checked.",
    )  # fmt: skip
    return PartResult([table], [
        Check.of("seconds to adopt Spark's own state", spreads["adoption, s"].values, _SECONDS_BOUND, at_most=True),
        Check.of("peak ratio of the rescale behind it", spreads["peak ratio"].values, _PEAK_BOUND, at_most=True),
    ])  # fmt: skip


PART = Part("adopted", "Spark's own state taken over", 6, _measure_part)


if __name__ == "__main__":
    sys.exit(measure_here(Path(sys.argv[1]), AdoptedSettings, _measure, heavy=_HEAVY))
