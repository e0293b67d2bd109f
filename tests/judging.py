"""NEXMark events as a topic in two partitions, answers as a worker's results, and what the oracle says of them."""

import json

import numpy as np

from harness.oracle.columns import MovedBins, Ranges, hash_bins
from harness.oracle.nexmark.check import InputEvents, JsonResults, check

NUMBERS = np.int64


def objects(values):
    out = np.empty(len(values), object)
    out[:] = values
    return out


def topic(events):
    """The events in two partitions, as JSON without what a kind does not have."""
    text = [json.dumps({k: v for k, v in e.items() if k != "kind"} | {"scheduled_us": e["dateTime"]}) for e in events]
    place = np.arange(len(events))
    order = np.argsort(place % 2, kind="stable")
    return InputEvents((place % 2).astype(np.int32)[order], (place // 2)[order], objects(text)[order])


def ranges(events, epochs=4):
    """Each epoch absorbs the same share of both partitions."""
    per = -(-len(events) // 2)
    edges = np.linspace(0, per, epochs + 1).astype(int)
    rows = [(e, p, edges[e], edges[e + 1]) for e in range(epochs) for p in range(2) if edges[e] < edges[e + 1]]
    epoch, partition, begin, end = np.array(rows, NUMBERS).reshape(-1, 4).T
    return Ranges(epoch, partition.astype(np.int32), begin, end)


def results(answers, *, numbers=None, at_us=None):
    """Answers of one worker in one partition, numbered in their order, there at some times."""
    n = len(answers)
    zeros = np.zeros(n, np.int64)
    index = np.arange(n) if numbers is None else np.array(numbers, np.int64)
    text = [a if isinstance(a, str) else json.dumps(a) for a in answers]
    place, at = (zeros.astype(np.int32), np.arange(n)), zeros if at_us is None else np.array(at_us)
    number = zeros.astype(np.int32), zeros + 1, zeros + 3, index, zeros
    return JsonResults(*place, *number, objects([b"k"] * n), objects(text), at)


def judged(name, events, found, **options):
    return check(
        topic(events), found, ranges(events), query=name, bin_of=hash_bins(16), moves=MovedBins.of([]), **options
    )
