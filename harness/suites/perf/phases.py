"""Part phases: where an epoch's time goes, as lines that do not overlap; `account` is a pure function.

The module is the program of the measurement too, see `harness.lab.measuring`.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pyspark.sql import SparkSession

from harness.experiment.make import make_experiment
from harness.lab.measuring import measure_here, measured_in_child
from harness.lab.waiting import wait_for
from harness.run.load import LoadGenerator, schedule
from harness.run.pipeline import bring_up_alone, start_query
from harness.suites.perf.part import Check, Part, PartResult, Scale, Table
from impls.driver.epochs import EpochRecord

_LEAST, _MOST = 0.95, 1.05
# line of the table -> where its times are: a field of EpochPhases and names in it; what it is
LINES = {
    "latest offsets": ("spark", ("latestOffset",), "Spark asks the sources how far they are"),
    "offset log": ("spark", ("walCommit",), "Spark writes the epoch's offsets"),
    "plan of the batch": (
        "spark",
        ("getBatch", "queryPlanning"),
        "Spark makes the epoch's DataFrame: getBatch and query planning",
    ),
    "call into Python": ("spark", ("addBatch",), "from Spark's sink to foreachBatch and back"),
    "plan": ("driver", ("plan",), "this runtime's plan, made and made durable"),
    "expression": ("driver", ("build",), "the epoch's DataFrame operations over py4j"),
    "analysis and scheduling": ("job", ("before",), "from collect() to the first task: plan, code, job, stage"),
    "map stage": ("job", ("first",), "Kafka, parsing, bins, shuffle write"),
    "open": ("workers", ("open",), "a worker opens its store and checks it"),
    "pull": ("workers", ("drop", "pull"), "a worker moves state"),
    "apply": ("workers", ("apply",), "a worker reads and changes state"),
    "commit": ("workers", ("commit",), "a worker commits"),
    "changelog": ("workers", ("log", "snapshot"), "a worker writes its frame"),
    "producer": ("workers", ("send",), "a worker sends results and waits for the broker"),
    "hand-shake and Arrow": (
        "job",
        ("second",),
        "the rest of the second stage: scheduling, the Python worker, Arrow, shuffle read",
    ),
    "collect": ("job", ("behind",), "from the last task to the reports in Python"),
    "observe": ("driver", ("observe",), "reports merged, made durable, and taken in"),
    "commit log": ("spark", ("commitOffsets",), "Spark writes that the epoch is done"),
    "progress and trigger": ("driver", ("between",), "Spark's own account of the epoch, and the next trigger"),
}
_KEEP = {"spark.sql.streaming.numRecentProgressUpdates": "10000"}
_SKIP = 1 / 3  # of the epochs of the load: until the JVM is warm
_READY_DEADLINE_S = 180.0
_DRAIN_DEADLINE_S = 60.0


@dataclass(frozen=True)
class _Settings:
    """A steady load of `seconds` at `rate` records per second on `keys` keys."""

    keys: int
    rate: int
    seconds: float


@dataclass(frozen=True)
class EpochPhases:
    """What is known of an epoch, times in ms.

    Attributes:
        total: from one epoch's end in foreachBatch to the next one's.
        spark: durations of Spark's progress: latestOffset, walCommit, getBatch, queryPlanning, addBatch, commitOffsets,
            triggerExecution.
        driver: between, plan, build, job, observe.
        workers: the slowest worker's open, pull, apply, commit, log, send, snapshot.
        job: before (the first stage), the stages first and second, and behind (from the last task's end on).
    """

    total: float
    spark: Mapping[str, float]
    driver: Mapping[str, float]
    workers: Mapping[str, float]
    job: Mapping[str, float]


def account(epoch: EpochPhases) -> dict[str, float]:
    """Returns the lines of an epoch in ms, in the order of `LINES`.

    Three times hold others that have lines of their own, which are taken from them: Spark's call holds what the driver
    does in it, the second stage holds the workers' phases, and `between` of the driver holds Spark's work between two
    calls of foreachBatch: what its progress does not name of that is the trigger's.
    """
    lines = {
        line: float(sum(getattr(epoch, part).get(name, 0.0) for name in names))
        for line, (part, names, _) in LINES.items()
    }

    def take(line: str, inner: float) -> None:
        lines[line] = max(lines[line] - inner, 0.0)

    def of(part: str) -> float:
        return sum(lines[line] for line in LINES if LINES[line][0] == part)

    take("call into Python", sum(epoch.driver[name] for name in ("plan", "build", "job", "observe")))
    take("hand-shake and Arrow", of("workers"))
    take("progress and trigger", of("spark"))
    return lines


def shares(epochs: Sequence[EpochPhases]) -> tuple[dict[str, float], float]:
    """Returns the mean of each line in ms, and the share of the epochs' time that the lines add up to."""
    accounts = [account(epoch) for epoch in epochs]
    means = {name: float(np.mean([one[name] for one in accounts])) for name in LINES}
    return means, sum(means.values()) / float(np.mean([epoch.total for epoch in epochs]))


def _measure(folder: Path, scale: Scale) -> PartResult:
    """Runs a steady load once and takes its epochs apart; hash-count, 1 M keys, 10,000 records/s."""
    settings = _Settings(scale.pick(1_000_000, 20_000), scale.pick(10_000, 2_000), scale.pick(30.0, 9.0))
    epochs = measured_in_child("harness.suites.perf.phases", folder, settings)
    means, share = shares([EpochPhases(**epoch) for epoch in epochs])
    total = sum(means.values()) / share
    rows = [[name, f"{ms:,.1f}", f"{ms / total:.1%}", LINES[name][2]] for name, ms in means.items()]
    rows.append(["all of these", f"{total * share:,.1f}", f"{share:.1%}", f"of an epoch of {total:,.1f} ms"])
    note = "Means over the epochs of a steady load; inside the second stage, of the slowest worker of each epoch."
    table = Table("Where an epoch's time goes", ("phase", "ms", "share", "what it is"), rows, note)
    sentence = "share of the epoch that the phases add up to"
    return PartResult(
        [table], [Check(sentence, share, _LEAST, at_most=False), Check(sentence, share, _MOST, at_most=True)]
    )


PART = Part("Where an epoch's time goes", 1.5, _measure)


def _measure_epochs(folder: Path, settings: _Settings) -> list[EpochPhases]:
    """Runs the load and returns the epochs of its last two thirds."""
    experiment = make_experiment(
        mechanism="none", name="phases", workload="hash", keys=settings.keys, rate=settings.rate, migration="none",
        bins=256, workers=4, lead_in_s=0.0, duration_s=settings.seconds,
    )  # fmt: skip
    (run,) = experiment.runs()
    records: list[EpochRecord] = []
    with ExitStack() as stack:
        services = stack.enter_context(bring_up_alone(experiment, folder, _KEEP))
        bootstrap, spark = services.broker.bootstrap, services.spark
        handle = start_query(
            spark, run, folder, bootstrap, ("in", "out"), on_epoch=records.append, on_event=lambda *_: None
        )
        query = stack.enter_context(handle)
        wait_for(lambda: bool(records) or query.failed is not None, "the first epoch", _READY_DEADLINE_S)
        load = schedule(folder, experiment, "in")
        with LoadGenerator(folder, bootstrap, load, resume=False) as generator:
            wait_for(generator.finished, "the load", settings.seconds + _DRAIN_DEADLINE_S)
        wait_for(lambda: sum(map(_records, list(records))) >= load["records"], "the last record", _DRAIN_DEADLINE_S)
        progress = {p["batchId"]: p["durationMs"] for p in _progress(spark) if "addBatch" in p["durationMs"]}
        jobs = _jobs(spark)
    loaded = [r for r in records if r.begin_us >= load["start_us"] and _records(r)]
    chosen = loaded[round(len(loaded) * _SKIP) : -1]
    return [
        _epoch(r, progress[r.written.epoch], job)
        for r in chosen
        if r.written.epoch in progress and (job := _job_of(r, jobs)) is not None
    ]


def _records(record: EpochRecord) -> int:
    return sum(report.records for report in record.reports)


def _progress(spark: SparkSession) -> list[dict[str, Any]]:
    (query,) = spark.streams.active
    return [json.loads(p.json) for p in query.recentProgress]


def _jobs(spark: SparkSession) -> list[tuple[float, ...]]:
    """Returns (submitted, first stage's begin and end, second stage's begin and end) of the jobs known, in ms."""
    store = spark.sparkContext._jsc.sc().statusStore()
    listed = store.jobsList(None)
    found = [_times(store, listed.apply(i)) for i in range(listed.size())]
    return [times for times in found if times is not None]


def _times(store: Any, job: Any) -> tuple[float, ...] | None:
    ids = sorted(job.stageIds().apply(i) for i in range(job.stageIds().size()))
    stages = [store.lastStageAttempt(number) for number in ids]
    if len(stages) != 2:
        return None
    moments = [job.submissionTime(), *(m for s in stages for m in (s.submissionTime(), s.completionTime()))]
    return tuple(float(m.get().getTime()) for m in moments) if all(m.isDefined() for m in moments) else None


def _called_ms(record: EpochRecord) -> float:
    """Returns when the driver called for an epoch's job, wall clock in ms."""
    return record.begin_us / 1e3 + record.ms["plan"] + record.ms["build"]


def _job_of(record: EpochRecord, jobs: list[tuple[float, ...]]) -> tuple[float, ...] | None:
    """Returns the one job that was submitted while an epoch waited for its own."""
    called = _called_ms(record)
    own = [job for job in jobs if called - 1 <= job[0] <= called + record.ms["job"]]
    return own[0] if len(own) == 1 else None


def _epoch(record: EpochRecord, spark: dict[str, float], job: tuple[float, ...]) -> EpochPhases:
    _, begin, first, start, end = job
    slowest = max(record.reports, key=lambda report: sum(report.ms.values()))
    called = _called_ms(record)
    return EpochPhases(
        total=sum(record.ms.values()),
        spark={name: float(value) for name, value in spark.items()},
        driver=record.ms,
        workers=slowest.ms,
        job={
            "before": max(begin - called, 0.0),
            "first": max(start - begin, first - begin),
            "second": end - max(start, first),
            "behind": max(called + record.ms["job"] - end, 0.0),
        },
    )


if __name__ == "__main__":
    sys.exit(measure_here(_Settings, _measure_epochs))
