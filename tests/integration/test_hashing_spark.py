"""Spark SQL and Python agree on hash, bin and worker of any key."""

import numpy as np
import pytest
from pyspark.sql import functions as F  # noqa: N812

from impls.operators import DenseCount
from impls.spark.columns import key_bytes, worker_column
from impls.store.hashing import bin_of_hash, bin_sql, hash_bytes, hash_int64

pytestmark = pytest.mark.spark
MASK = 2**64 - 1


def test_random_bytes_hash_alike(spark):
    draw = np.random.default_rng(1)
    keys = [draw.bytes(int(n)) for n in draw.integers(0, 200, 1000)]
    df = spark.createDataFrame([(bytearray(k),) for k in keys], "k binary")
    assert [row[0] & MASK for row in df.select(F.xxhash64("k")).collect()] == [hash_bytes(k) for k in keys]


@pytest.mark.parametrize(("bins", "workers"), [(2, 2), (256, 128), (256, 129), (16384, 500), (16384, 16384)])
def test_integers_get_the_same_hash_bin_and_worker(spark, bins, workers):
    keys = np.random.default_rng(2).integers(-(2**63), 2**63 - 1, 1000)
    routing = np.append(np.random.default_rng(3).integers(0, workers, bins - 1), workers - 1).astype(np.int32)
    df = spark.createDataFrame([(k,) for k in keys.tolist()], "k long")
    binned = df.withColumn("bin", F.expr(bin_sql("k", bins)))
    rows = binned.select(F.xxhash64("k"), "bin", worker_column("bin", routing), key_bytes(F.col("k"))).collect()
    expected = hash_int64(keys)
    assert [row[0] & MASK for row in rows] == expected.tolist()
    assert [row[1] for row in rows] == bin_of_hash(expected, bins).tolist()
    assert [row[2] for row in rows] == routing[bin_of_hash(expected, bins)].tolist()
    assert [bytes(row[3]) for row in rows] == [int(k).to_bytes(8, "big", signed=True) for k in keys]


@pytest.mark.parametrize("keys", [256, 1000, 8_000_000])
def test_dense_keys_get_the_bin_of_their_range(spark, keys):
    operator, names = DenseCount(keys), sorted({0, 1, keys // 256 - 1, keys // 256, keys // 3, keys - 1})
    df = spark.createDataFrame([(k,) for k in names], "k long").select(F.expr(operator.bin_sql("k", 256)))
    assert [row[0] for row in df.collect()] == [k // operator.per_bin(256) for k in names]
