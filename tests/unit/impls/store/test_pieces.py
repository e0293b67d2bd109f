"""Stored records depend on the records alone: two attempts of an epoch get them in different pieces."""

import pyarrow as pa
import pytest

from impls.store.records import from_bytes, to_bytes


@pytest.mark.parametrize("cut", [0, 1, 2, 3])
def test_records_in_pieces_are_stored_as_in_one(cut):
    columns = {"offset": pa.array([1, 2, 3], pa.int64()), "time": pa.nulls(3, pa.int64()), "key": [b"a", b"", b"ccc"]}
    whole = pa.table(columns)
    pieces = pa.concat_tables([whole.slice(0, cut), whole.slice(cut)])
    assert to_bytes(pieces) == to_bytes(whole)
    assert from_bytes(to_bytes(pieces)).equals(whole)
