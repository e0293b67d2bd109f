"""Part recovery: a worker's environment is deleted and rebuilt from the checkpoint, without Spark.

Each point: a worker with all bins and so many dense keys, `_EPOCHS` epochs of records with changelog and
snapshots as in a query, then the environment is lost and the next epoch's recovery is timed.
"""

import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from harness.suites.perf.part import Check, Part, PartResult, Scale, Spread, Table
from impls.driver.keeper import Keeper
from impls.durability.files import Files
from impls.durability.schedule import REPLAY_EPOCHS
from impls.operators import DenseCount
from impls.protocol.ended import EndedEpoch
from impls.protocol.order import EpochOrder
from impls.protocol.plan import EpochPlan, WrittenPlan
from impls.store.environment import store_path
from impls.store.records import Results
from impls.worker.attempts import run_epoch
from impls.worker.output import Output
from impls.worker.query import QuerySpec, Task

_BINS = 256
_RECORDS = 500  # of an epoch
_EPOCHS = REPLAY_EPOCHS * 3 // 2  # the log is then as long as it gets
_BOUNDS_S, _QUICK_S = {1_000_000: 2.0, 10_000_000: 10.0}, {20_000: 2.0}  # by number of keys


class _Nowhere(Output):
    """Takes results and forgets them: recovery sends none."""

    def send(self, results: Results, **numbers: int) -> None:
        """Does nothing."""


class _Query:
    """One worker that owns everything, and the epochs it runs."""

    def __init__(self, folder: Path, keys: int):
        self.keys, self.operator = keys, DenseCount(keys)
        self.files = Files(str(folder / "checkpoint"))
        self.sizes, self.owner = np.zeros(_BINS, np.int64), np.zeros(_BINS, np.int32)
        self.keeper = Keeper(self.files, "q", ended=EndedEpoch(-1, self.owner), generation=1, sizes=self.sizes)
        self.spec = QuerySpec("q", _BINS, self.operator, _Nowhere("", "", 1), str(folder / "state"), self.files)
        self._random = np.random.default_rng(1)
        self.number = -1

    def epoch(self) -> float:
        """Runs the next epoch and returns its recovery's seconds, 0 for none."""
        self.number += 1
        written = WrittenPlan(self.number, 1, 1, EpochPlan(self.owner.copy()))
        order = EpochOrder(written, 1, first=self.number == 0, snapshot=self.keeper.to_snapshot(self.number))
        report, _ = run_epoch(Task(self.spec, order, 0), [self._batch()])
        self.sizes[report.sizes[0]] = report.sizes[1]
        self.keeper.observe(EndedEpoch(self.number, self.owner), [report], self.owner, self.sizes)
        return report.ms.get("recover", 0.0) / 1e3

    def _batch(self) -> pa.Table:
        keys = self._random.integers(0, self.keys, _RECORDS)
        bins, zero = keys // self.operator.per_bin(_BINS), np.zeros(_RECORDS, np.int64)
        columns = {"bin": bins.astype(np.int32), "partition": zero.astype(np.int32), "offset": zero, "time": zero}
        return pa.table({**columns, "key": keys})


def _recovery(keys: int) -> dict[str, Any]:
    """Returns one point: one recovery, measured in a temporary folder that is deleted."""
    with tempfile.TemporaryDirectory(prefix="rescale-recovery-", ignore_cleanup_errors=True) as name:
        query = _Query(Path(name), keys)
        query.epoch()
        start = time.perf_counter()
        for _ in range(_EPOCHS):
            query.epoch()
        epoch_ms = (time.perf_counter() - start) / _EPOCHS * 1e3
        log = query.files.names("log")
        shutil.rmtree(store_path(Path(name) / "state", 0))
        recovery_s = query.epoch()
    return {
        "state MB": int(query.sizes.sum()) / 1e6, "log MB": sum(size for _, size in log) / 1e6, "files": len(log),
        "epoch, ms": epoch_ms, "recovery, s": recovery_s,
    }  # fmt: skip


def _measure(_folder: Path, scale: Scale) -> PartResult:
    rows, checks = [], []
    for keys, bound_s in scale.pick(_BOUNDS_S, _QUICK_S).items():
        points = [_recovery(keys) for _ in range(scale.pick(3, 1))]
        found = {name: Spread(tuple(float(point[name]) for point in points)) for name in points[0]}
        rows.append([f"{keys:,}", *(spread.text(2 * (name != "files")) for name, spread in found.items())])
        sentence = f"recovery of a worker of {keys:,} dense keys, s"
        checks.append(Check.of(sentence, found["recovery, s"].values, bound_s, at_most=True))
    return PartResult([Table("One worker is rebuilt", ("keys", *found), rows)], checks)


PART = Part("Recovery from the checkpoint", 2, _measure)
