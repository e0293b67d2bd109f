"""Quantising, counting and merging equal what hdrhistogram does, for any latencies."""

import numpy as np
from hdrh.histogram import HdrHistogram
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.measure import hdr
from impls.worker.cells import CELL, INTERVAL_US, make_cells, quantise

LATENCIES = st.one_of(
    st.integers(0, hdr.HIGHEST_US),
    st.integers(0, 31).map(lambda n: 1 << n),
    st.integers(1, 31).map(lambda n: (1 << n) - 1),
)
COUNTED = st.lists(st.tuples(LATENCIES, st.integers(1, 10**6)), min_size=1, max_size=60)


def reference(pairs):
    out = HdrHistogram(hdr.LOWEST_US, hdr.HIGHEST_US, hdr.DIGITS)
    for value, count in pairs:
        assert out.record_value(value, count)
    return out


def arrays(pairs):
    return np.array([value for value, _ in pairs], np.int64), np.array([count for _, count in pairs], np.int64)


def same(a, b):
    assert a.get_total_count() == b.get_total_count()
    assert a.get_max_value() == b.get_max_value()
    assert a.get_min_value() == b.get_min_value()
    assert list(a.counts) == list(b.counts)


@settings(deadline=None)
@given(values=st.lists(LATENCIES, min_size=1, max_size=200))
def test_quantise_is_hdrhistograms_own_bucketing(values):
    one, array = HdrHistogram(hdr.LOWEST_US, hdr.HIGHEST_US, hdr.DIGITS), np.array(values)
    assert quantise(array).tolist() == [one.get_lowest_equivalent_value(value) for value in values]
    assert hdr.highest_equivalent(array).tolist() == [one.get_highest_equivalent_value(value) for value in values]


@settings(deadline=None)
@given(pairs=COUNTED)
def test_quantised_values_give_the_same_histogram_as_raw_ones(pairs):
    values, counts = arrays(pairs)
    same(hdr.histogram(quantise(values), counts), reference(pairs))


@settings(deadline=None)
@given(pairs=COUNTED, points=st.lists(st.floats(0.001, 100), min_size=1, max_size=8))
def test_percentiles_are_those_of_the_merged_histogram(pairs, points):
    whole = reference(pairs)
    values, counts = arrays(pairs)
    assert hdr.percentiles(values, counts, points).tolist() == [whole.get_value_at_percentile(p) for p in points]


@settings(deadline=None)
@given(parts=st.lists(COUNTED, min_size=1, max_size=4))
def test_merging_is_recording_everything_in_one(parts):
    merged = hdr.merge(hdr.histogram(*arrays(part)) for part in parts)
    same(merged, reference([pair for part in parts for pair in part]))


@settings(deadline=None)
@given(data=st.data(), latencies=st.lists(st.integers(-50, 10_000_000), min_size=1, max_size=300))
def test_cells_hold_every_record_once(data, latencies):
    done = 1_767_225_600_000_000 + data.draw(st.integers(0, 10**9))
    moved = np.array(data.draw(st.lists(st.booleans(), min_size=len(latencies), max_size=len(latencies))))
    scheduled = done - np.array(latencies, np.int64)
    cells, negative = make_cells(scheduled, done, moved)
    assert cells.dtype == CELL
    assert negative == sum(latency < 0 for latency in latencies)
    quantised = quantise(np.maximum(latencies, 0)).tolist()
    raw = zip((scheduled // INTERVAL_US).tolist(), quantised, moved.tolist(), strict=True)
    expected: dict = {}
    for key in raw:
        expected[key] = expected.get(key, 0) + 1
    found = {(int(c["interval"]), int(c["latency_us"]), bool(c["moved"])): int(c["count"]) for c in cells}
    assert found == expected
    assert len(found) == len(cells), "a cell occurs twice"
