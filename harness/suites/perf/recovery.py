"""How long the recovery of one worker takes: its environment is deleted and rebuilt by the worker core, without Spark.

Each point: a worker with all bins and `keys` dense or hash keys, `epochs` epochs of records with changelog and
snapshots as in a query, then the environment is lost and the next epoch's recovery is timed.
"""

import json
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from harness.options import ending, parse_number
from harness.options.declared import read_words
from harness.suites.options import RECOVERY
from impls.driver.keeper import Keeper
from impls.durability.files import Files
from impls.durability.schedule import REPLAY_EPOCHS
from impls.operators import DenseCount, HashCount, Operator
from impls.protocol.order import EpochOrder
from impls.protocol.plan import EpochPlan, WrittenPlan
from impls.store.environment import store_path
from impls.store.hashing import bin_of_hash, hash_int64
from impls.store.records import Results
from impls.worker.attempts import run_epoch
from impls.worker.output import Output
from impls.worker.query import QuerySpec, Task

_BINS = 256
_RECORDS = 500  # of an epoch
_EPOCHS = REPLAY_EPOCHS * 3 // 2  # the log is then as long as it gets


class _Nowhere(Output):
    """Takes results and forgets them: recovery sends none."""

    def send(self, results: Results, **numbers: int) -> None:
        """Does nothing."""


class _Query:
    """One worker that owns everything, and the epochs it runs."""

    def __init__(self, folder: Path, workload: str, keys: int):
        self.keys = keys
        self.operator: Operator = DenseCount(keys) if workload == "dense" else HashCount(preload=keys)
        self.files = Files(str(folder / "checkpoint"))
        self.sizes, self.owner = np.zeros(_BINS, np.int64), np.zeros(_BINS, np.int32)
        self.keeper = Keeper(self.files, "q", epoch=-1, generation=1, location=self.owner, sizes=self.sizes)
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
        self.keeper.observe(self.number, [report], self.owner, self.owner, self.sizes)
        return report.ms.get("recover", 0.0) / 1e3

    def _batch(self) -> pa.Table:
        keys = self._random.integers(0, self.keys, _RECORDS)
        bins = bin_of_hash(hash_int64(keys), _BINS)
        if isinstance(self.operator, DenseCount):
            bins = (keys // self.operator.per_bin(_BINS)).astype(np.int32)
        zero = np.zeros(_RECORDS, np.int64)
        columns = {"bin": bins.astype(np.int32), "partition": zero.astype(np.int32), "offset": zero, "time": zero}
        return pa.table({**columns, "key": keys})


def _measure(workload: str, keys: int) -> dict[str, Any]:
    """Returns one point of the curve: one recovery, measured in a temporary folder that is deleted."""
    with tempfile.TemporaryDirectory(prefix="rescale-recovery-", ignore_cleanup_errors=True) as name:
        query = _Query(Path(name), workload, keys)
        query.epoch()
        start = time.perf_counter()
        for _ in range(_EPOCHS):
            query.epoch()
        epoch_ms = (time.perf_counter() - start) / _EPOCHS * 1e3
        log = query.files.names("log")
        shutil.rmtree(store_path(Path(name) / "state", 0))
        recovery_s = query.epoch()
    return {
        "workload": workload, "keys": keys, "state_bytes": int(query.sizes.sum()),
        "log_bytes": sum(size for _, size in log), "frames": len(log),
        "recovery_s": round(recovery_s, 3), "epoch_ms": round(epoch_ms, 3),
    }  # fmt: skip


@ending()
def _main(arguments: Sequence[str]) -> int:
    """Prints the curve, one line of JSON per point; returns the exit code, 2 for bad input."""
    options = read_words(RECOVERY, arguments, __doc__)
    sizes = [parse_number(text, "The number of keys") for text in options["keys"].split(",")]
    for _ in range(options["rounds"]):
        for keys in sizes:
            sys.stdout.write(json.dumps(_measure(options["workload"], keys)) + "\n")
            sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
