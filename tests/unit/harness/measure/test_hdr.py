"""Latencies that fit into no histogram are counted and refused; numbers come with their units."""

import numpy as np
import pytest

from harness.measure import hdr
from impls.worker.cells import CELL, make_cells

START_US = 1_767_225_600_000_000
NONE = np.empty(0, np.int64)


def test_latencies_outside_the_range_are_counted_and_refused():
    values, counts = np.array([5, hdr.HIGHEST_US, hdr.HIGHEST_US + 1, -1]), np.array([1, 2, 3, 4])
    assert hdr.refused(values, counts) == 7
    with pytest.raises(hdr.MeasureError, match=r"^7 latencies lie outside"):
        hdr.histogram(values, counts)


def test_an_hour_still_fits():
    assert hdr.histogram(np.array([hdr.HIGHEST_US]), np.array([1])).get_total_count() == 1


def test_a_latency_beyond_what_a_cell_holds_is_noticed_by_the_histogram():
    cells, negative = make_cells(np.array([START_US]), START_US + (1 << 40), np.array([False]))
    assert negative == 0
    assert hdr.refused(cells["latency_us"], cells["count"]) == 1


def test_negative_latencies_are_counted_and_kept_as_zero():
    cells, negative = make_cells(np.array([START_US + 7, START_US, START_US + 1]), START_US, np.zeros(3, bool))
    assert negative == 2
    assert cells["count"].sum() == 3
    assert cells["latency_us"].tolist() == [0]


def test_no_record_gives_no_cell_and_no_number():
    cells, negative = make_cells(NONE, START_US, np.empty(0, bool))
    assert (len(cells), cells.dtype, negative) == (0, CELL, 0)
    assert hdr.summary_ms(NONE, NONE) == {"count": 0, **dict.fromkeys(("p50", "p90", "p99", "p999", "max"))}
    assert hdr.percentiles(NONE, NONE, [50.0]).tolist() == [0]
    assert hdr.histogram(NONE, NONE).get_total_count() == 0


def test_summary_is_in_milliseconds():
    found = hdr.summary_ms(np.array([1_000, 2_000]), np.array([999, 1]))
    assert found == {"count": 1000, "p50": 1.0, "p90": 1.0, "p99": 1.0, "p999": 1.0, "max": 2.0}


def test_moved_records_are_kept_apart():
    cells, _ = make_cells(np.full(5, START_US), START_US + 900, np.array([1, 0, 1, 0, 0], bool))
    assert sorted((int(c["moved"]), int(c["count"])) for c in cells) == [(0, 3), (1, 2)]
