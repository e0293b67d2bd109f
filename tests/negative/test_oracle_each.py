"""Spark's own count in real time: a result for every record at least once, and what is not so is rejected."""

from dataclasses import replace

import numpy as np
import pytest
from histories import BINS, KEYS, bin_of

from harness.oracle.columns import MovedBins, Records
from harness.oracle.native import NativeResults, arrivals_in_time, cell_lines, check_each

PRELOADED = KEYS // 2
ANSWERED_US = 7_000


def _input(seed, number=400):
    rng = np.random.default_rng(seed)
    partition, scheduled = np.arange(number) % 2, 1_000_000 + np.arange(number) * 1_000
    order = np.argsort(partition, kind="stable")
    offset = np.concatenate([np.arange(np.sum(partition == p)) for p in range(2)])
    key = rng.integers(0, KEYS, number)
    return Records(partition[order].astype(np.int32), offset, key[order], scheduled[order])


def _results(records, *, again=0):
    """A result for every record in the order of their schedule; the last `again` come twice, as after a restart."""
    rows = np.argsort(records.scheduled_us)
    key, seen = records.key[rows], {}
    count = np.array([seen.setdefault(k, []).append(1) or len(seen[k]) for k in key.tolist()])
    appended = records.scheduled_us[rows] + ANSWERED_US
    made = np.arange(PRELOADED)  # one result per preloaded key comes first
    key, count = np.concatenate([made, key]), np.concatenate([np.ones(PRELOADED, int), count + (key < PRELOADED)])
    appended = np.concatenate([np.zeros(PRELOADED, int), appended])
    if again:
        key, count = np.append(key, key[-again:]), np.append(count, count[-again:])
        appended = np.append(appended, appended[-again:] + 500_000)
    partition = key % 3
    order = np.argsort(partition, kind="stable")
    offset = np.concatenate([np.arange(np.sum(partition == p)) for p in range(3)])
    return NativeResults(partition[order].astype(np.int32), offset, key[order], count[order], appended[order])


def _found(records, results, moves=()):
    moved = MovedBins.of([(at, bin_, "one") for at in moves for bin_ in range(BINS)])
    return check_each(records, results, preloaded=PRELOADED, bin_of=bin_of, moves=moved)


@pytest.mark.parametrize("again", [0, 90])
def test_what_is_right_is_clean_and_repeats_are_counted(again):
    records = _input(3)
    found = _found(records, _results(records, again=again), moves=[1_300_000])
    assert (found.totals, found.repeats) == (dict.fromkeys(found.totals, 0), again)
    assert (found.records, found.results, found.crossed) == (400, 400, {"one": 100})


def test_a_result_that_is_missing_is_lost_in_the_middle_and_at_the_end():
    records = _input(4)
    whole = _results(records)
    rows = np.flatnonzero(whole.key == whole.key[-1])
    for row, why in ((rows[2], "no result of a record"), (rows[-1], "final count")):
        found = _found(records, whole.take(np.delete(np.arange(len(whole)), row)))
        assert found.totals == {**dict.fromkeys(found.totals, 0), "lost": 1}
        assert found.examples["lost"]["first"]["why"] == why


def test_a_count_above_the_records_is_doubled():
    records = _input(5)
    found = _found(records.take(np.arange(len(records)) != 7), _results(records))
    assert found.totals == {**dict.fromkeys(found.totals, 0), "doubled": 1}


def test_an_unknown_key_and_a_key_in_two_partitions_are_wrong():
    records = _input(6)
    whole = _results(records)
    key, partition = whole.key.copy(), whole.partition.copy()
    key[-1], partition[5 + PRELOADED // 3] = KEYS + 5, 2
    assert _found(records, replace(whole, key=key)).totals["wrong"] == 1
    assert _found(records, replace(whole, partition=partition)).totals["wrong"] >= 1


def test_a_record_s_latency_ends_with_the_first_result_that_counts_it():
    records = _input(7)
    lines = cell_lines(arrivals_in_time(records), _results(records, again=90), preloaded=PRELOADED)
    done = np.repeat([line["done_us"] for line in lines], 1)
    assert len(lines) == 400
    assert sorted(done.tolist()) == (np.sort(records.scheduled_us) + ANSWERED_US).tolist()
