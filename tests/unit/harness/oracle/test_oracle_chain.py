"""The oracle of a chain: what either stage loses, doubles, gets wrong or out of order, each told apart."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.oracle.chain import StageResults, check
from harness.oracle.columns import Records
from harness.oracle.verdict import CLASSES

NAMES = ("worker", "epoch", "index", "key", "n", "sum", "seen", "odd")


def stage(rows):
    """Results from rows of `NAMES` of one partition, in its order."""
    worker, epoch, index, key, n, total, seen, odd = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    number, zero = np.arange(len(rows)), np.zeros(len(rows), np.int64)
    return StageResults(
        partition=zero.astype(np.int32), offset=number, worker=worker.astype(np.int32), generation=zero, epoch=epoch,
        index=index, commit=zero, key=key, n=n, sum=total, seen=seen, odd=odd,
    )  # fmt: skip


def records(keys):
    number = np.arange(len(keys))
    return Records(
        partition=number.astype(np.int32) * 0, offset=number, key=np.array(keys, np.int64), scheduled_us=number
    )


def run(commits):
    """Returns keys, first and second results of a chain whose stages run these commits, lists of keys, one by one."""
    keys, counts, sums, first, second = [], {}, {}, [], []
    for epoch, commit in enumerate(commits):
        for key in commit:
            sums[key] = sums.get(key, 0) + len(keys)  # the time of a record is its place
            keys.append(key)
            counts[key] = counts.get(key, 0) + 1
        first += [(0, epoch, index, key, counts[key], sums[key], 0, 0) for index, key in enumerate(sorted(set(commit)))]
    seen = {}
    for index, (_, epoch, _, key, n, *_) in enumerate(first):
        seen[key] = seen.get(key, 0) + 1
        second.append((1, epoch, index, key, n, 0, seen[key], 0))
    return keys, first, second


COMMITS = [[1, 2, 2], [1, 1], [2, 1]]  # counts: 1 -> 1, 3, 4; 2 -> 2, 3


def found(keys, first, second):
    differences = check(records(keys), stage(first), stage(second))
    return {kind: number for kind, number in differences.totals.items() if number}


@given(st.lists(st.lists(st.integers(0, 3), min_size=1), min_size=1), st.data())
def test_a_right_chain_is_clean_with_repeats_of_either_stage(commits, data):
    keys, *stages = run(commits)
    sent = []
    for rows in stages:
        at, size = data.draw(st.integers(0, len(rows) - 1)), data.draw(st.integers(0, 3))
        sent.append([*rows[: at + 1], *rows[max(0, at + 1 - size) : at + 1], *rows[at + 1 :]])
    differences = check(records(keys), *map(stage, sent))
    assert differences.clean
    assert differences.repeats == sum(map(len, sent)) - sum(map(len, stages))
    assert (differences.records, differences.results) == (len(keys), sum(map(len, stages)))


def altered(rows, key, n, /, **values):
    """The rows with other values in those of a key's count."""
    known = [dict(zip(NAMES, row, strict=True)) for row in rows]
    return [tuple((row | values if (row["key"], row["n"]) == (key, n) else row).values()) for row in known]


PLANTS = {
    "a record lost": (lambda keys, first, second: ([*keys, 1], first, second), {"lost": 1}),
    "a record counted twice": (lambda keys, first, second: (keys[:-1], first, second), {"doubled": 1}),
    "a result unseen": (
        lambda keys, first, second: (keys, first, [row for row in second if row[3:5] != (1, 4)]), {"lost": 1},
    ),
    "a result seen twice": (
        lambda keys, first, second: (keys, first, [*second, (1, 9, 0, 1, 4, 0, 4, 0)]), {"doubled": 1, "wrong": 1},
    ),
    "one record for another": (lambda keys, first, second: (keys, altered(first, 1, 4, sum=7), second), {"wrong": 1}),
    "another count": (lambda keys, first, second: (keys, first, altered(second, 1, 3, n=9)), {"wrong": 1}),
    "results out of order": (
        lambda keys, first, second: (keys, first, altered(second, 1, 4, odd=1)), {"out_of_order": 1},
    ),
    "counts that fall": (
        lambda keys, first, second: (keys, altered(first, 1, 3, n=5), second), {"out_of_order": 1, "wrong": 1},
    ),
    "a key of nobody": (
        lambda keys, first, second: (keys, [*first, (0, 9, 0, 7, 1, 0, 0, 0)], second), {"doubled": 1, "lost": 1},
    ),
}  # fmt: skip


@pytest.mark.parametrize("plant", PLANTS)
def test_what_is_planted_is_told_apart(plant):
    change, wanted = PLANTS[plant]
    assert found(*change(*run(COMMITS))) == wanted


def test_each_class_is_planted():
    assert {kind for _, kinds in PLANTS.values() for kind in kinds} == set(CLASSES)
