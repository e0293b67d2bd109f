"""Results of another query: each counts once, however often its sender has sent it, and wherever the bin goes."""

from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from impls.store.environment import Store
from impls.store.numbers import Numbers
from impls.store.records import NUMBER, PRODUCER
from impls.store.state import BinState
from impls.worker.results import Deduplicator, Number

BINS = 3
KINDS = {"bin": pa.int32(), "offset": pa.int64(), PRODUCER: pa.int64(), NUMBER: pa.int64()}


def table(rows):
    columns = zip(*rows, strict=True) if rows else ((),) * len(KINDS)
    return pa.table({name: pa.array(column, kind) for (name, kind), column in zip(KINDS.items(), columns, strict=True)})


def rows_of(found):
    return list(zip(*(found.column(name).to_pylist() for name in KINDS), strict=True))


def topic_of(sent):
    """Messages (bin, offset, producer, number) of a partition: what each of two workers sends, and sends again.

    A worker that sends again begins at one of the results of its last commit.
    """
    topic, commits = [], {}
    for worker, bins, again in sent:
        first = commits.get(worker, (0, []))
        numbers = range(first[0], first[0] + len(bins))
        commits[worker] = (numbers.stop, list(zip(numbers, bins, strict=True)))
        for number, bin_ in [*commits[worker][1], *commits[worker][1][again:]]:
            topic.append((bin_, len(topic), -1 - worker, number))
    return topic


in_bins = st.lists(st.integers(0, BINS - 1), min_size=1, max_size=4)
sending = st.lists(st.tuples(st.integers(0, 1), in_bins, st.integers(0, 5)), min_size=1, max_size=12)


@given(sending, st.lists(st.integers(0, 60)), st.data())
def test_each_result_is_new_once_in_whatever_commits_and_parts_it_comes(tmp_path_factory, sent, cuts, data):
    topic, dedup = topic_of(sent), Deduplicator()
    wanted = [row for row in topic if dedup.accept(0, Number(0, row[2] + 9, 0, 0, row[3]))]
    edges = [0, *sorted({cut for cut in cuts if cut < len(topic)}), len(topic)]
    numbers, found = Numbers(), []
    with Store.open(tmp_path_factory.mktemp("store")) as store:
        for begin, end in pairwise(edges):
            if data.draw(st.booleans(), "opened anew"):
                numbers = Numbers()
            for fails in data.draw(st.sampled_from([[False], [True, False]]), "a commit that fails first"):
                txn = store.begin()
                numbers.begin(txn)
                half = data.draw(st.integers(begin, end), "what had waited")
                parts = [numbers.new(table(topic[begin:half])), numbers.new(table(topic[half:end]))]
                state = BinState(txn, BINS)
                advance = numbers.advance(pa.concat_tables(parts), state)
                state.write_sizes()
                if fails:
                    txn.abort()
                else:
                    txn.commit()
                    advance.hold()
            found += [row for part in parts for row in rows_of(part)]
    assert found == wanted


@pytest.fixture
def numbers(tmp_path):
    with Store.open(tmp_path / "store") as store, store.reading() as txn:
        known = Numbers()
        known.begin(txn)
        yield known


def test_rows_of_one_result_are_no_repeats_of_each_other(numbers):
    twice = [(0, 5, -1, 7), (0, 5, -1, 7), (0, 6, -1, 7), (1, 6, -1, 7)]
    assert rows_of(numbers.new(table(twice))) == [twice[0], twice[1], twice[3]]


@pytest.mark.parametrize("column", [pa.array([None, None], pa.int64()), pa.array([0, 0])])
def test_what_is_no_result_of_another_query_stays(numbers, column):
    plain = table([(0, 1, -1, 7), (0, 1, -1, 3)])
    for of in (plain.select(["bin", "offset"]), plain.set_column(2, PRODUCER, column)):
        assert numbers.new(of).num_rows == 2
        assert not numbers.moved


def test_two_bins_and_two_producers_are_told_apart(numbers):
    rows = [(bin_, offset, producer, 4) for offset, (bin_, producer) in enumerate([(0, -1), (0, -2), (1, -1), (0, -1)])]
    assert rows_of(numbers.new(table(rows))) == rows[:3]


def test_a_repeat_alone_moves_nothing_and_what_an_operator_fails_on_does(tmp_path):
    with Store.open(tmp_path / "store") as store:
        for row, moved in (((0, 3, -1, 7), True), ((0, 9, -1, 7), False), ((0, 10, -1, 8), True)):
            txn, numbers = store.begin(), Numbers()
            numbers.begin(txn)
            numbers.new(table([row]))
            assert numbers.moved is moved
            state = BinState(txn, BINS)
            numbers.advance(None, state).hold()
            state.write_sizes()
            txn.commit()


def test_a_bin_that_has_left_takes_what_it_knows_along(tmp_path):
    with Store.open(tmp_path / "store") as store, store.reading() as txn:
        numbers = Numbers()
        numbers.begin(txn)
        numbers.new(table([(0, 3, -1, 7), (1, 4, -1, 8)]))
        numbers.forget([0])
        assert [row[0] for row in rows_of(numbers.new(table([(0, 5, -1, 7), (1, 6, -1, 8)])))] == [0]
