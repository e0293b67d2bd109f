"""Columns of the query, as far as they can be judged without Spark."""

import numpy as np

from impls.spark.columns import routing_literal


def test_a_routing_takes_a_byte_per_bin_and_digit():
    assert routing_literal(np.array([1, 127], np.int32), 1) == b"\x01\x7f"
    assert routing_literal(np.array([1, 258], np.int32), 2) == b"\x00\x01\x02\x02"
