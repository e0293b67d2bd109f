"""The order of records: partition and offset; of files also the file and the place in it, epoch by epoch."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from impls.store.records import TIES, concat, oldest_first

FILE, ROW = TIES
PLACES = st.tuples(st.integers(0, 1), st.integers(0, 2), st.integers(-2, 2), st.integers(0, 2))


def _table(places, *, of_files=True):
    columns = dict(zip(("partition", "offset", FILE, ROW), map(list, zip(*places, strict=True)), strict=True))
    table = pa.table({**columns, "number": list(range(len(places)))})
    return table if of_files else table.drop_columns(list(TIES))


@given(st.lists(PLACES, min_size=1))
def test_records_of_files_are_in_the_order_of_their_files_and_places_and_equal_ones_as_they_came(places):
    expected = sorted(range(len(places)), key=lambda number: places[number])
    assert concat([_table(places)]).column("number").to_pylist() == expected


@given(st.lists(PLACES, min_size=1))
def test_other_records_are_in_the_order_of_partition_and_offset(places):
    expected = sorted(range(len(places)), key=lambda number: places[number][:2])
    assert concat([_table(places, of_files=False)]).column("number").to_pylist() == expected


def test_records_of_files_that_waited_stay_in_front_of_later_ones_with_an_older_time():
    waited, later = _table([(0, 9, 0, 0)]), _table([(0, 5, 0, 0)])
    assert oldest_first([waited, later]).column("offset").to_pylist() == [9, 5]


def test_other_records_that_waited_are_ordered_with_later_ones():
    waited, later = (_table([place], of_files=False) for place in ((1, 3, 0, 0), (0, 8, 0, 0)))
    assert oldest_first([waited, later]).column("offset").to_pylist() == [8, 3]
