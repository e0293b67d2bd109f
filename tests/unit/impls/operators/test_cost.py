"""What a record costs and what its key keeps: time spent, values stored, results untouched."""

import time

import numpy as np
import pyarrow as pa
import pytest

from harness.experiment.description import Experiment
from harness.run.pipeline import operator_for
from impls.errors import UsageError
from impls.operators import DenseCount, HashCount
from impls.operators.keycount import _keys_by_bin, padding, pay
from impls.store.bins import read_size
from impls.store.environment import Store
from impls.store.hashing import bin_of_hash, hash_int64
from impls.store.state import BinState

KEYS, BINS = 40, 4


@pytest.fixture
def store(tmp_path):
    with Store.open(tmp_path / "w") as opened:
        yield opened


def counted(store, operator, keys):
    """Creates all bins, applies records of the keys twice, and returns (results, values stored by key, bytes)."""
    keys = np.array(keys, np.int64)
    dense = isinstance(operator, DenseCount)
    bins = (keys // operator.per_bin(BINS)).astype(np.int32) if dense else bin_of_hash(hash_int64(keys), BINS)
    with store.begin() as txn:
        state = BinState(txn, BINS)
        for bin_ in range(BINS):
            operator.create(bin_, BINS, state)
        for _ in range(2):
            results = operator.apply(pa.table({"key": keys, "bin": bins}), state)
        state.write_sizes()
        names = [int(key).to_bytes(8, "big") for key in keys]
        values = [] if dense else state.get_many(bins.tolist(), names)
        return results, values, sum(read_size(txn, bin_)[1] for bin_ in range(BINS))


@pytest.mark.parametrize("size", [0, 1, 8, 1000])
def test_a_value_is_the_count_and_padding_of_its_key(store, size):
    results, values, used = counted(store, HashCount(KEYS, value_bytes=size), [3, 99, 7])
    assert sorted(int.from_bytes(v, "little") for v in results.payloads) == [2, 2, 2]
    expected = [(2).to_bytes(8, "little") + padding(key.to_bytes(8, "big"), size) for key in (3, 99, 7)]
    assert values == expected
    assert used == (KEYS + 1) * (8 + size + 4)


def test_a_worker_that_counts_keeps_no_list_of_all_keys(store):
    counted(store, HashCount(KEYS), [3])
    assert _keys_by_bin.cache_info().currsize == 0


def test_padding_has_its_length_and_follows_from_the_key():
    assert [len(padding(b"abc", n)) for n in (0, 2, 3, 10)] == [0, 2, 3, 10]
    assert padding(b"abc", 7) == b"abcabca"
    assert padding(b"", 0) == b""


@pytest.mark.parametrize("cost", ["wait", "compute"])
@pytest.mark.parametrize("make", [lambda **c: DenseCount(KEYS, **c), lambda **c: HashCount(KEYS, **c)])
def test_a_cost_takes_its_time_and_changes_no_result(store, tmp_path, make, cost):
    begin = time.monotonic()
    found = counted(store, make(cost_us=10_000, cost=cost), [1, 2, 2])[0]
    assert time.monotonic() - begin >= 0.06
    with Store.open(tmp_path / "free") as other:
        free = counted(other, make(), [1, 2, 2])[0]
    assert (found.keys, found.payloads, found.bins.tolist()) == (free.keys, free.payloads, free.bins.tolist())


def test_waiting_takes_no_processor_and_computing_does():
    begin = time.thread_time()
    pay(100, 1000, "wait")
    waited = time.thread_time() - begin
    pay(100, 1000, "compute")
    computed = time.thread_time() - begin - waited
    assert waited < 0.05
    assert computed >= 0.1


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"cost": "think"}, "wait or compute, not 'think'"),
        ({"cost_us": -1}, "from 0 to 1000000 µs, not -1"),
        ({"cost_us": float("nan")}, "from 0 to 1000000 µs"),
        ({"value_bytes": -1}, "from 0 to 1048576, not -1"),
        ({"value_bytes": 1 << 21}, "from 0 to 1048576"),
    ],
)
def test_a_cost_that_cannot_be_is_refused(options, says):
    with pytest.raises(UsageError, match=says):
        HashCount(KEYS, **options)


def test_an_experiment_hands_its_costs_to_the_operator():
    dense = operator_for(Experiment(keys=9, cost_us=5, cost="compute"))
    hashed = operator_for(Experiment(keys=9, workload="hash", cost_us=5, value_bytes=100))
    assert dense == DenseCount(9, cost_us=5, cost="compute")
    assert hashed == HashCount(9, value_bytes=100, cost_us=5)
