"""Where results are numbered by commits, the oracle passes what is right and rejects what is broken."""

from dataclasses import replace

import committed
import lmdb
import numpy as np
import pytest
from histories import OUTPUTS
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.oracle.columns import NextOffsets, OracleError
from harness.oracle.commits import UndecidedError, read_next_offsets, unexplained
from impls.store.offsets import WHOLE


@pytest.mark.parametrize("partitions", [1, 2, 3])
@pytest.mark.parametrize("seed", range(4))
def test_a_right_history_has_no_finding(seed, partitions):
    history = committed.make(seed, partitions=partitions)
    found = history.found()
    assert (found.totals, found.examples) == (dict.fromkeys(found.totals, 0), {})
    assert found.crossed["one"] > 0
    assert found.repeats > 0


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ("lost bin", "lost"), ("doubled record", "doubled"), ("skipped record", "lost"),
        ("commit sent under two numbers", "doubled"),
    ],
)  # fmt: skip
def test_a_planted_fault_is_rejected(seed, fault, kind):
    found = committed.make(seed, fault=fault).found()
    assert found.totals[kind] > 0


def _first_sent(history):
    """Rows of results that are no repeats."""
    r = history.results
    _, first = np.unique(np.stack([r.worker, r.epoch, r.index]), axis=1, return_index=True)
    _, times = np.unique(np.stack([r.worker, r.epoch, r.index]), axis=1, return_counts=True)
    return np.sort(first[times == 1])


def _same_commit(r, row):
    """Which results are of the commit of one."""
    return (r.worker == r.worker[row]) & (r.epoch == r.epoch[row]) & (r.commit == r.commit[row])


@given(seed=st.integers(0, 20), pick=st.integers(0, 10_000))
@settings(max_examples=40, deadline=None)
def test_a_missing_result_is_lost_whatever_comes_later(seed, pick):
    history = committed.make(seed)
    r, rows = history.results, _first_sent(history)
    whole_commits = [row for row in rows if np.sum(_same_commit(r, row)) > 1]
    row = whole_commits[pick % len(whole_commits)]
    last = r.index[row] == r.index[_same_commit(r, row)].max()
    found = history.take_results(np.delete(np.arange(len(r)), row)).found()
    assert found.totals["lost"] > 0 or last


def _without_commits(seed, *, last):
    """Findings of lost results for commits whose results are all missing: the last of their epochs, or the others."""
    history = committed.make(seed)
    r = history.results
    commits = sorted({*zip(r.worker.tolist(), r.epoch.tolist(), r.commit.tolist(), strict=True)})
    ends = {(worker, epoch): commit for worker, epoch, commit in commits}
    for worker, epoch, commit in [t for t in commits if (ends[t[:2]] == t[2]) is last][:40]:
        missing = (r.worker == worker) & (r.epoch == epoch) & (r.commit == commit)
        found = history.take_results(np.flatnonzero(~missing)).found()
        assert found.totals == {**dict.fromkeys(found.totals, 0), "lost": found.totals["lost"]}
        yield found.totals["lost"], found.examples.get("lost", {}).get("first", {}).get("why", "")


@pytest.mark.parametrize("seed", range(3))
def test_a_commit_that_is_missing_leaves_a_gap_in_the_numbers_of_its_epoch(seed):
    found = list(_without_commits(seed, last=False))
    assert all(lost for lost, _ in found)
    only_the_gap = {why for lost, why in found if lost == 1}
    assert only_the_gap == {"results of the epoch are missing"}, "the next commit of its keys may have its records"


def test_the_last_commit_of_an_epoch_that_is_missing_is_seen_by_what_follows():
    found = [pair for seed in range(3) for pair in _without_commits(seed, last=True)]
    assert sum(lost > 0 for lost, _ in found) > 0.8 * len(found), "it leaves no gap: a commit may cover the one before"
    assert {why for lost, why in found if lost} == {
        "no order of the records explains the commit: a result before it is missing",
        "final count",
    }


def test_two_results_of_a_key_in_the_wrong_order_are_out_of_order():
    history = committed.make(3)
    r, rows = history.results, np.arange(len(history.results))
    key = r.key[60]
    one, other = np.flatnonzero((r.key == key) & np.isin(rows, _first_sent(history)))[-2:]
    rows[[one, other]] = rows[[other, one]]
    assert history.take_results(rows).found().totals["out_of_order"] > 0


def test_a_repeat_that_differs_and_a_result_in_another_partition_are_wrong():
    history = committed.make(5)
    r = history.results
    numbers = np.stack([r.worker, r.epoch, r.index])
    _, first, times = np.unique(numbers, axis=1, return_index=True, return_counts=True)
    repeated = first[times == 2][0]
    again = np.flatnonzero((numbers == numbers[:, repeated : repeated + 1]).all(axis=0))[1]
    count = r.count.copy()
    count[again] += 1
    assert replace(history, results=replace(r, count=count)).found().totals["wrong"] == 1
    partition = r.partition.copy()
    partition[0] = (partition[0] + 1) % OUTPUTS
    assert replace(history, results=replace(r, partition=partition)).found().totals["wrong"] > 0


@pytest.mark.parametrize(
    ("by", "kind", "why"), [(-1, "lost", "not behind its last"), (10_000, "wrong", "beyond the end")]
)
def test_next_offsets_that_do_not_fit_the_topic_are_found(by, kind, why):
    history = committed.make(2)
    after = history.offsets.next.copy()
    after[3] += by
    found = replace(history, offsets=replace(history.offsets, next=after)).found()
    assert found.totals == {**dict.fromkeys(found.totals, 0), kind: 1}
    assert why in found.examples[kind]["first"]["why"]


def test_a_bin_without_a_next_offset_is_lost():
    history = committed.make(2)
    found = replace(history, offsets=history.offsets.take(np.arange(1, len(history.offsets)))).found()
    assert found.totals["lost"] == 1


@pytest.mark.parametrize(
    ("inputs", "commits", "place"),
    [
        ([[1, 2, 1], [2, 3]], [{1: 1, 2: 1}, {1: 1, 2: 1, 3: 1}], None),
        ([[1, 2, 1], [2, 3]], [{2: 1}, {3: 1}, {1: 1}, {1: 1, 2: 1}], None),
        ([[1, 2, 1], [2, 3]], [{3: 1}], 0),
        ([[1, 2, 1], [2, 3]], [{2: 1}, {1: 2}], 1),
        ([[5, 5, 6], [5, 7], [8]], [{5: 2}, {7: 1}, {6: 1, 5: 1}], None),
        ([[5, 6], [7], [8]], [{8: 1, 6: 1}], 0),
        ([[1, 2]], [{1: 1}, {2: 1}], None),
        ([[1, 2]], [{2: 1}], 0),
    ],
)
def test_commits_are_explained_by_records_in_their_order(inputs, commits, place):
    assert unexplained(inputs, commits) == place


def test_too_many_ways_are_said_to_be_too_many():
    with pytest.raises(UndecidedError):
        unexplained([[1] * 2000, [1] * 2000], [{1: 1000}])


def _environment(folder, items):
    with lmdb.open(str(folder)) as env, env.begin(write=True) as txn:
        for key, value in items:
            txn.put(key, value)


def test_next_offsets_are_read_from_the_owners_environments(tmp_path):
    def item(bin_, partition, after):
        key = bytes([7]) + bin_.to_bytes(2, "big") + partition.to_bytes(8, "big")
        return key, (after - 1).to_bytes(8, "big") + WHOLE.to_bytes(8, "big") + b"crc!"

    _environment(tmp_path / "worker-0000", [(b"\x06x", b"y"), item(0, 0, 5), item(0, 1, 6), item(1, 0, 3)])
    _environment(tmp_path / "worker-0002", [item(1, 0, 9), (b"\x08x", b"y")])
    found = read_next_offsets(tmp_path, np.array([0, 2]))
    assert list(zip(*(getattr(found, name).tolist() for name in NextOffsets.dtypes()), strict=True)) == [
        (0, 0, 5, 0), (0, 1, 6, 0), (1, 0, 9, 2),
    ]  # fmt: skip
    with pytest.raises(OracleError, match="worker-0001 is not there"):
        read_next_offsets(tmp_path, np.array([0, 1]))
    _environment(tmp_path / "worker-0003", [(b"\x07short", b"y")])
    with pytest.raises(OracleError, match="of another form"):
        read_next_offsets(tmp_path, np.array([0, 3]))
