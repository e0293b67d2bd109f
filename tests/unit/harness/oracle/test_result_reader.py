"""The shipped reader of results: numbers, repeats, order."""

import pytest
from hypothesis import strategies as st

from impls.worker.results import NUMBER, Deduplicator, Number, ResultReader, number_of, numbers_of

SENT = st.lists(st.tuples(*(st.integers(0, n) for n in (2, 3, 5, 5))), max_size=60)


def _message(partition, worker, epoch, index):
    return partition, [("n", NUMBER.pack(worker, 1, epoch, index))], b"key", bytes([epoch, index])


def test_number_is_found_among_other_headers():
    headers = [("trace", b"x"), ("n", NUMBER.pack(65535, 2**32 - 1, 2**32 - 1, 7))]
    assert number_of(headers) == Number(65535, 2**32 - 1, 2**32 - 1, 7)


def test_the_numbers_of_an_epoch_are_each_what_is_read():
    found = [number_of([("n", number)]) for number in numbers_of(65535, 2**32 - 1, 7, 300)]
    assert found == [Number(65535, 2**32 - 1, 7, index) for index in range(300)]
    assert numbers_of(1, 1, 1, 0) == []


@pytest.mark.parametrize("headers", [[], [("n", b"short")], [("m", bytes(NUMBER.size))]])
def test_message_without_a_number_is_refused(headers):
    with pytest.raises(ValueError, match="not a result of this pipeline"):
        number_of(headers)


def test_reader_drops_a_retry_that_starts_again():
    sent = [_message(0, 1, 4, i) for i in range(3)]
    retried = [*sent[:2], *sent, _message(1, 1, 4, 0), _message(0, 2, 4, 0), _message(0, 1, 5, 0)]
    read = [(result.partition, result.number.worker, *result.value) for result in ResultReader(retried)]
    assert read == [(0, 1, 4, 0), (0, 1, 4, 1), (0, 1, 4, 2), (1, 1, 4, 0), (0, 2, 4, 0), (0, 1, 5, 0)]


def test_reader_goes_on_where_an_earlier_one_stopped():
    first = ResultReader([_message(0, 1, 4, i) for i in range(3)])
    assert len(list(first)) == 3
    second = ResultReader([_message(0, 1, 4, i) for i in range(5)], Deduplicator(first.deduplicator.last))
    assert [result.number.index for result in second] == [3, 4]
