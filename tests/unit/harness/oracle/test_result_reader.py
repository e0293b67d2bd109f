"""The shipped reader of results: numbers, repeats, order, results of several queries, and what is no result."""

from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from impls.worker.results import NUMBER, Deduplicator, Number, ResultReader, number_of, numbers_of, query_number

LAST = Number(2**64 - 1, 65535, 2**32 - 1, 2**32 - 1, 2**64 - 2, 2**32 - 1)


def _message(partition, worker, epoch, index, query=1):
    return partition, [("n", numbers_of(Number(query, worker, 1, epoch, index), 1)[0])], b"key", bytes([epoch, index])


@pytest.mark.parametrize("number", [Number(0, 0, 0, 0, 0), LAST, Number(5, 3, 1, 7, 1 << 40, 9)])
def test_number_is_found_among_other_headers(number):
    assert number_of([("trace", b"x"), ("n", None), ("n", numbers_of(number, 1)[0])]) == number


def test_the_numbers_of_a_commit_go_on_beyond_32_bits():
    first = Number(7, 3, 1, 5, 2**32 - 2, 4)
    found = [number_of([("n", number)]) for number in numbers_of(first, 300)]
    assert found == [Number(7, 3, 1, 5, 2**32 - 2 + place, 4) for place in range(300)]
    assert numbers_of(first, 0) == []


@pytest.mark.parametrize(
    "headers", [None, [], [("n", None)], [("n", "x" * NUMBER.size)], [("n", b"short")], [("m", bytes(NUMBER.size))]]
)
def test_a_message_of_another_program_is_no_result(headers):
    assert number_of(headers) is None
    assert [r.value for r in ResultReader([(0, headers, None, None), _message(0, 1, 4, 0)])] == [bytes([4, 0])]


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


sources = st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 1))  # query, worker, partition


@given(st.lists(st.tuples(sources, st.integers(1, 4), st.booleans()), max_size=30))
def test_each_query_on_a_topic_is_read_whole_whatever_others_send_and_repeat(sends):
    topic, sent, last = [], defaultdict(list), {}
    for (query, worker, partition), results, again in sends:
        source = query, worker, partition
        epoch = last.get(source, (0, 0))[0] + (not again)
        last[source] = epoch, results if not again else max(results, last.get(source, (0, 0))[1])
        rows = [(partition, worker, epoch, index, query) for index in range(results)]
        sent[source] += [row for row in rows if row not in sent[source]]
        topic += [_message(*row) for row in rows]
    read = defaultdict(list)
    for result in ResultReader(topic):
        number = result.number
        source = number.query, number.worker, result.partition
        read[source].append((result.partition, number.worker, number.epoch, number.index, number.query))
    assert read == {source: rows for source, rows in sent.items() if rows}


def test_two_queries_have_two_numbers():
    assert query_number("a" * 32) != query_number("a" * 31 + "b")


def test_what_a_reader_of_the_first_release_has_stored_refuses_what_it_had():
    old = {(3, 0): (4, 1)}  # worker and partition
    rows = [_message(0, 3, 4, index, query=0) for index in range(3)]
    assert [r.number.index for r in ResultReader(rows, Deduplicator(old))] == [2]
    assert query_number("") == 0
