"""Part phases: where an epoch's time goes, as lines that do not overlap; `account` is a pure function."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from harness.lab.measuring import measured_in_child
from harness.suites.perf.part import Check, Part, PartResult, Scale, Table

__all__ = ["LINES", "PART", "EpochPhases", "PhasesSettings", "account", "measure", "shares"]

_LEAST, _MOST = 0.95, 1.05
# line of the table -> what it is
LINES = {
    "latest offsets": "Spark asks the sources how far they are",
    "offset log": "Spark writes the epoch's offsets",
    "plan of the batch": "Spark makes the epoch's DataFrame: getBatch and query planning",
    "call into Python": "from Spark's sink to foreachBatch and back",
    "plan": "this runtime's plan, made and made durable",
    "expression": "the epoch's DataFrame operations over py4j",
    "analysis and scheduling": "from collect() to the first task: plan, code, job, stage",
    "map stage": "Kafka, parsing, bins, shuffle write",
    "open": "a worker opens its store and checks it",
    "pull": "a worker moves state",
    "apply": "a worker reads and changes state",
    "commit": "a worker commits",
    "changelog": "a worker writes its frame",
    "producer": "a worker sends results and waits for the broker",
    "hand-shake and Arrow": "the rest of the second stage: scheduling, the Python worker, Arrow, shuffle read",
    "collect": "from the last task to the reports in Python",
    "observe": "reports merged, made durable, and taken in",
    "commit log": "Spark writes that the epoch is done",
    "progress and trigger": "Spark's own account of the epoch, and the next trigger",
}


@dataclass(frozen=True)
class PhasesSettings:
    """A steady load of `seconds` at `rate` records per second on `keys` keys."""

    keys: int
    rate: int
    seconds: float
    workers: int = 4
    bins: int = 256


@dataclass(frozen=True)
class EpochPhases:
    """What is known of an epoch, times in ms.

    Attributes:
        total: from one epoch's end in foreachBatch to the next one's.
        spark: durations of Spark's progress: latestOffset, walCommit, getBatch, queryPlanning, addBatch, commitOffsets,
            triggerExecution.
        driver: between, plan, build, job, observe.
        workers: the slowest worker's open, pull, apply, commit, log, send, snapshot.
        before, first, second, behind: of the job: to the first stage, the stages, and from the last task's end on.
    """

    total: float
    spark: Mapping[str, float]
    driver: Mapping[str, float]
    workers: Mapping[str, float]
    before: float
    first: float
    second: float
    behind: float


def account(epoch: EpochPhases) -> dict[str, float]:
    """Returns the lines of an epoch in ms, in the order of `LINES`.

    `between` of the driver holds Spark's work between two calls of foreachBatch: what its progress does not name of
    that is the trigger's.
    """
    spark, driver, workers = epoch.spark, epoch.driver, epoch.workers
    inside = sum(driver[name] for name in ("plan", "build", "job", "observe"))
    named = {
        "latest offsets": spark.get("latestOffset", 0.0),
        "offset log": spark.get("walCommit", 0.0),
        "plan of the batch": spark.get("getBatch", 0.0) + spark.get("queryPlanning", 0.0),
        "call into Python": max(spark.get("addBatch", 0.0) - inside, 0.0),
        "commit log": spark.get("commitOffsets", 0.0),
    }
    own = {
        "open": workers.get("open", 0.0),
        "pull": workers.get("drop", 0.0) + workers.get("pull", 0.0),
        "apply": workers.get("apply", 0.0),
        "commit": workers.get("commit", 0.0),
        "changelog": workers.get("log", 0.0) + workers.get("snapshot", 0.0),
        "producer": workers.get("send", 0.0),
    }
    found = {
        **named,
        **own,
        "plan": driver["plan"],
        "expression": driver["build"],
        "analysis and scheduling": epoch.before,
        "map stage": epoch.first,
        "hand-shake and Arrow": max(epoch.second - sum(own.values()), 0.0),
        "collect": epoch.behind,
        "observe": driver["observe"],
        "progress and trigger": max(driver["between"] - sum(named.values()), 0.0),
    }
    return {name: found[name] for name in LINES}


def shares(epochs: Sequence[EpochPhases]) -> tuple[dict[str, float], float]:
    """Returns the mean of each line in ms, and the share of the epochs' time that the lines add up to."""
    accounts = [account(epoch) for epoch in epochs]
    means = {name: float(np.mean([one[name] for one in accounts])) for name in LINES}
    return means, sum(means.values()) / float(np.mean([epoch.total for epoch in epochs]))


def measure(folder: Path, scale: Scale) -> PartResult:
    """Runs a steady load once and takes its epochs apart; hash-count, 1 M keys, 10,000 records/s."""
    settings = PhasesSettings(scale.pick(1_000_000, 20_000), scale.pick(10_000, 2_000), scale.pick(30.0, 9.0))
    epochs = measured_in_child("harness.suites.perf.phases.process", folder, settings)
    means, share = shares([EpochPhases(**epoch) for epoch in epochs])
    total = sum(means.values()) / share
    rows = [[name, f"{ms:,.1f}", f"{ms / total:.1%}", LINES[name]] for name, ms in means.items()]
    rows.append(["all of these", f"{total * share:,.1f}", f"{share:.1%}", f"of an epoch of {total:,.1f} ms"])
    note = "Means over the epochs of a steady load; inside the second stage, of the slowest worker of each epoch."
    table = Table("Where an epoch's time goes", ("phase", "ms", "share", "what it is"), rows, note)
    checks = [
        Check("share of the epoch that the phases add up to", share, _LEAST, at_most=False),
        Check("share of the epoch that the phases add up to", share, _MOST, at_most=True),
    ]
    return PartResult([table], checks)


PART = Part("phases", "Where an epoch's time goes", 1.5, measure)
