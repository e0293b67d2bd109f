"""The twin does what the real step does, record for record, and commits an epoch once."""

import numpy as np
import pyarrow as pa
import pytest
from memory import MemoryOutput

from harness.suites.perf.twin.query import TwinOrder, twin_epoch
from impls.errors import StateError
from impls.operators import DenseCount, HashCount
from impls.protocol.order import EpochOrder
from impls.protocol.plan import EpochPlan, WrittenPlan
from impls.protocol.report import Report
from impls.store.environment import Store, store_path
from impls.store.hashing import bin_of_hash, hash_int64
from impls.store.records import Results
from impls.worker.attempts import run_epoch
from impls.worker.query import QuerySpec, Task
from impls.worker.state import last_record

KEYS, BINS, WORKERS = 1_000, 16, 2


def bins_of(operator, keys, bins):
    """The bin of each key, as the query's bin column computes it."""
    if isinstance(operator, HashCount):
        return bin_of_hash(hash_int64(keys), bins)
    return (keys // operator.per_bin(bins)).astype(np.int32)


def batch(operator, epoch, bins):
    keys = np.random.default_rng(epoch).integers(0, KEYS, 300)
    offsets = np.arange(300) + 300 * epoch
    columns = {"partition": np.zeros(300, np.int32), "offset": offsets, "time": offsets}
    return pa.table({"bin": bins_of(operator, keys, bins), **columns, "key": keys})


def live_epoch(folder, operator, epoch):
    plan = WrittenPlan(epoch, 1, 1, EpochPlan(np.zeros(BINS, np.int32)))
    output = MemoryOutput(str(folder))
    task = Task(QuerySpec("q", BINS, operator, output, str(folder)), EpochOrder(plan, 1, first=epoch == 0), 0)
    run_epoch(task, [batch(operator, epoch, BINS)])
    with Store.open(store_path(folder, 0)) as store, store.reading() as txn:
        return [Results.unpacked(last_record(txn)[1].results)]


def run_twin(folder, operator, epoch):
    order = TwinOrder("q", epoch, WORKERS, operator, MemoryOutput(str(folder)), str(folder))
    table = batch(operator, epoch, WORKERS)
    at = table.column("bin").to_numpy()
    return [twin_epoch(order, Report(worker), [table.filter(pa.array(at == worker))]) for worker in range(WORKERS)]


def pairs(found):
    return sorted(pair for results in found for pair in zip(results.keys, results.payloads, strict=True))


@pytest.mark.parametrize("operator", [HashCount(KEYS), DenseCount(KEYS)], ids=["hash", "dense"])
def test_twin_and_live_give_the_same_results(tmp_path, operator):
    for epoch in range(4):
        live = live_epoch(tmp_path / "live", operator, epoch)
        twin = run_twin(tmp_path / "twin", operator, epoch)
        assert sum(len(times) for _, times in twin) == 300
        assert pairs([results for results, _ in twin]) == pairs(live)
        assert len(pairs(live)) > 100


def test_an_epoch_that_is_committed_is_not_applied_again_and_none_is_left_out(tmp_path):
    run_twin(tmp_path, HashCount(KEYS), 0)
    first, again = (pairs([results for results, _ in run_twin(tmp_path, HashCount(KEYS), 1)]) for _ in range(2))
    assert first == again
    with pytest.raises(StateError, match="epoch 1, not before 3"):
        run_twin(tmp_path, HashCount(KEYS), 3)
