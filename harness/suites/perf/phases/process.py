"""Measures an epoch's phases: `python -m harness.suites.perf.phases.process FOLDER` obeys FOLDER/asked.json."""

import json
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from harness.experiment.make import make_experiment
from harness.lab.measuring import measure_here
from harness.lab.waiting import wait_for
from harness.run.load import Load, schedule
from harness.run.pipeline import bring_up_alone, operator_for, read_records
from harness.suites.perf.phases.account import EpochPhases, PhasesSettings
from impls.api import stream
from impls.driver.driver import EpochRecord
from impls.worker.output import Output

__all__ = ["main"]

_KEEP = {"spark.sql.streaming.numRecentProgressUpdates": "10000"}
_SKIP = 1 / 3  # of the epochs of the load: until the JVM is warm
_READY_DEADLINE_S = 180.0
_DRAIN_DEADLINE_S = 60.0


def _measure_epochs(folder: Path, settings: PhasesSettings) -> list[EpochPhases]:
    """Runs the load and returns the epochs of its last two thirds."""
    experiment = make_experiment(
        mechanism="none", name="phases", workload="hash", keys=settings.keys, rate=settings.rate, migration="none",
        bins=settings.bins, workers=settings.workers, lead_in_s=0.0, duration_s=settings.seconds,
    )  # fmt: skip
    records: list[EpochRecord] = []
    with ExitStack() as stack:
        services = stack.enter_context(bring_up_alone(experiment, folder, _KEEP))
        broker, spark = services.broker, services.spark
        query = stack.enter_context(
            stream(
                read_records(spark, broker.bootstrap, "in"), key="key", time="scheduled_us",
                operator=operator_for(experiment), results=Output(broker.bootstrap, "out", 4),
                state_dir=folder / "state", checkpoint=folder / "checkpoint", workers=settings.workers,
                bins=settings.bins, mechanism="none", on_epoch=records.append,
            )
        )  # fmt: skip
        wait_for(lambda: bool(records) or query.failed is not None, "the first epoch", _READY_DEADLINE_S)
        load = schedule(folder, experiment, "in")
        with Load(folder, broker.bootstrap, load, resume=False) as generator:
            wait_for(generator.finished, "the load", settings.seconds + _DRAIN_DEADLINE_S)
        wait_for(lambda: _done(records) >= load["records"], "the last record", _DRAIN_DEADLINE_S)
        progress = {p["batchId"]: p for p in _progress(spark) if "addBatch" in p["durationMs"]}
        jobs = _jobs(spark)
    loaded = [r for r in records if r.begin_us >= load["start_us"] and sum(x.records for x in r.reports)]
    chosen = loaded[round(len(loaded) * _SKIP) : -1]
    return [
        _epoch(r, progress[r.written.epoch]["durationMs"], job)
        for r in chosen
        if r.written.epoch in progress and (job := _job_of(r, jobs)) is not None
    ]


def _done(records: list[EpochRecord]) -> int:
    return sum(report.records for record in list(records) for report in record.reports)


def _progress(spark: SparkSession) -> list[dict[str, Any]]:
    (query,) = spark.streams.active
    return [json.loads(p.json) for p in query.recentProgress]


def _jobs(spark: SparkSession) -> list[tuple[float, ...]]:
    """Returns (submitted, first stage's begin and end, second stage's begin and end) of the jobs known, in ms."""
    store = spark.sparkContext._jsc.sc().statusStore()
    listed = store.jobsList(None)
    found = [_times(store, listed.apply(i)) for i in range(listed.size())]
    return [times for times in found if times is not None]


def _job_of(record: EpochRecord, jobs: list[tuple[float, ...]]) -> tuple[float, ...] | None:
    """Returns the one job that was submitted while an epoch waited for its own."""
    called = record.begin_us / 1e3 + record.ms["plan"] + record.ms["build"]
    own = [job for job in jobs if called - 1 <= job[0] <= called + record.ms["job"]]
    return own[0] if len(own) == 1 else None


def _times(store: Any, job: Any) -> tuple[float, ...] | None:
    ids = sorted(job.stageIds().apply(i) for i in range(job.stageIds().size()))
    stages = [store.lastStageAttempt(number) for number in ids]
    if len(stages) != 2:
        return None
    moments = [job.submissionTime(), *(m for s in stages for m in (s.submissionTime(), s.completionTime()))]
    return tuple(float(m.get().getTime()) for m in moments) if all(m.isDefined() for m in moments) else None


def _epoch(record: EpochRecord, spark: dict[str, float], job: tuple[float, ...]) -> EpochPhases:
    _, begin, first, start, end = job
    phases = {name for report in record.reports for name in report.ms}
    slowest = max(record.reports, key=lambda report: sum(report.ms.values()))
    called = record.begin_us / 1e3 + record.ms["plan"] + record.ms["build"]
    return EpochPhases(
        total=sum(record.ms.values()),
        spark={name: float(value) for name, value in spark.items()},
        driver=record.ms,
        workers={name: slowest.ms.get(name, 0.0) for name in phases},
        before=max(begin - called, 0.0),
        first=max(start - begin, first - begin),
        second=end - max(start, first),
        behind=max(called + record.ms["job"] - end, 0.0),
    )


def main(arguments: list[str]) -> int:
    """Writes measured.json of the folder given and returns the exit code: 0 done, 1 failed, 2 bad input."""
    return measure_here(Path(arguments[0]), PhasesSettings, _measure_epochs)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
