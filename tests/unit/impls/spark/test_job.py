"""What the JVM packs of the answers of an epoch's tasks is read back row by row."""

import struct

from hypothesis import given
from hypothesis import strategies as st

from impls.spark.job import rows_of


def packed(rows):
    return b"".join(struct.pack(">i", len(part)) + part for row in rows for part in row)


@given(st.lists(st.tuples(st.binary(max_size=20), st.binary(max_size=300)), max_size=5))
def test_rows_are_read_back_as_they_were_packed(rows):
    assert list(rows_of(packed(rows))) == rows
