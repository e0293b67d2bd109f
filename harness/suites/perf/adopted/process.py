"""The process of one measurement: `python -m harness.suites.perf.adopted.process FOLDER`; see `measure_here`.

Spark's own `groupBy().agg()` counts one record per key and is stopped; its checkpoint is adopted; the adopted query
runs a steady load and is rescaled in the midst of it.
"""

import sys
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from generators.clock import now_us
from generators.stream import NUMBER_BYTES
from harness.experiment.description import Experiment
from harness.experiment.make import make_experiment
from harness.lab.bringup import Services, bring_up, open_session
from harness.lab.measuring import measure_here
from harness.lab.waiting import wait_for
from harness.measure.cpu import machine
from harness.measure.memory import MemorySampler
from harness.results.entry import RunFiles, run_entry
from harness.run.load import Load, schedule
from harness.run.pipeline import read_records
from harness.run.recorder import Recorder
from harness.suites.perf.adopted.judging import check_topics
from impls.adoption.adopting import Adopted, adopt
from impls.aggregation import aggregate
from impls.driver.handle import StreamHandle
from impls.errors import StateError
from impls.mechanisms.native_spark.conf import own_state_store
from impls.worker.results import Output

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
        key = F.lpad(F.col("id").cast("string"), NUMBER_BYTES, "0")
        value = F.concat(key, F.lit("0" * NUMBER_BYTES)).alias("value")
        writer = self.services.spark.range(self.settings.keys).select(value).write.format("kafka")
        writer.option("kafka.bootstrap.servers", self.bootstrap).option("topic", _BEFORE).save()
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
            Load(self.folder, self.bootstrap, load, resume=False) as generator,
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
    return [_found(folder, adopted, results)]


def _found(folder: Path, adopted: Adopted, results: int) -> Adoption:
    files = RunFiles(folder)
    entry = run_entry(files)
    ((migration,), steady) = entry["migrations"], entry["latency_ms"]["steady"]
    if migration["peak_ratio"] is None:
        raise StateError("The rescale has no peak: no steady part came before it, or no record was on its way.")
    return Adoption(
        adopted.entries, adopted.seconds, migration["peak_ms"], migration["peak_ratio"], steady["p50"], steady["p99"],
        results, machine(files.taken),
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(measure_here(Path(sys.argv[1]), AdoptedSettings, _measure, heavy=_HEAVY))
