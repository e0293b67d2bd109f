"""Hashing in Python; that Spark computes the same is tested in tests/integration/test_hashing_spark.py."""

import numpy as np
import pytest

from impls.errors import UsageError
from impls.protocol.arrays import check_bins
from impls.store.hashing import bin_of_hash, hash_bytes, hash_int64


def test_integers_hash_as_their_little_endian_bytes():
    keys = np.random.default_rng(7).integers(-(2**63), 2**63 - 1, 1000)
    assert hash_int64(keys).tolist() == [hash_bytes(int(k).to_bytes(8, "little", signed=True)) for k in keys]


def test_the_bin_is_the_top_bits():
    hashes = np.array([0, 2**56, 2**64 - 1], np.uint64)
    assert bin_of_hash(hashes, 256).tolist() == [0, 1, 255]


@pytest.mark.parametrize(("bins", "workers"), [(3, 1), (0, 1), (1, 1), (1 << 15, 1), (4, 5)])
def test_unusable_bin_counts_are_refused(bins, workers):
    with pytest.raises(UsageError):
        check_bins(bins, workers)
