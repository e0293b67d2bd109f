"""Blobs come out as they went in, and damage is noticed."""

import pyarrow as pa
import pytest
from router import encode

from impls.realtime.blobs import decode

SCHEMA = pa.schema([("bin", pa.int32()), ("offset", pa.int64()), ("key", pa.binary())])


def records(rows: int) -> pa.RecordBatch:
    keys = [b"key-%d" % i if i % 3 else None for i in range(rows)]
    return pa.RecordBatch.from_arrays(
        [pa.array(range(rows), pa.int32()), pa.array(range(rows), pa.int64()), pa.array(keys, pa.binary())],
        schema=SCHEMA,
    )


@pytest.mark.parametrize("rows", [1, 2, 3, 5000])
def test_a_blob_comes_out_as_it_went_in(rows):
    batch = records(rows)
    blob = decode(encode(3, 7, 41, batch, came_us=10, packed_us=20), SCHEMA, read_us=30)
    assert (blob.source, blob.number, blob.epoch) == (3, 7, 41)
    assert (blob.came_us, blob.packed_us, blob.read_us) == (10, 20, 30)
    assert blob.table.equals(pa.Table.from_batches([batch]))


def test_a_slice_takes_only_its_own_rows_along():
    raw = encode(0, 1, 0, records(100_000).slice(50_000, 2))
    assert len(raw) < 1_000
    assert decode(raw, SCHEMA).table.column("bin").to_pylist() == [50_000, 50_001]


@pytest.mark.parametrize("damage", [lambda raw: raw[:20], lambda raw: b"XXXX" + raw[4:], lambda raw: raw[:100]])
def test_bytes_that_are_no_blob_are_refused(damage):
    raw = encode(0, 1, 0, records(3))
    with pytest.raises(ValueError, match="not a valid blob"):
        decode(damage(raw), SCHEMA)
