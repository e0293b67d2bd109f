"""The parts of external state that need no server: packed form, cache, tokens, addresses, the mechanism."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from impls import catalog
from impls.errors import StateError, UsageError
from impls.mechanisms.external.cache import Cache, cache_of
from impls.mechanisms.external.client import check_server, connect, pack_items, pack_names, shown, unpack_values
from impls.mechanisms.external.transaction import Token, bin_of
from impls.protocol.controller import Controller
from impls.store.tables import DENSE, META, OUTBOX, QUEUE, SIZE, STATE, bin_key

names = st.binary(min_size=1, max_size=40)


@given(st.lists(st.none() | st.binary(max_size=50)))
def test_values_come_out_of_their_packed_form_as_they_went_in(values):
    lengths = np.array([-1 if value is None else len(value) for value in values], "<i4").tobytes()
    assert unpack_values([lengths, *(value or b"" for value in values)]) == values


@given(st.lists(st.tuples(names, names)))
def test_packed_names_and_items_begin_with_their_length(items):
    raw, at, found = pack_items(items), 0, []
    while at < len(raw):
        parts = []
        for width in (2, 4):
            size = int.from_bytes(raw[at : at + width], "little")
            parts.append(raw[at + width : at + width + size])
            at += width + size
        found.append(tuple(parts))
    assert found == items
    assert len(pack_names(name for name, _ in items)) == sum(2 + len(name) for name, _ in items)


@given(st.integers(1, 9), st.integers(0, 9), st.integers(0, 9))
def test_a_token_is_read_as_it_was_written_and_a_later_move_has_a_larger_one(generation, epoch, worker):
    token = Token(generation, epoch, worker)
    assert Token.decode(token.encode()) == token
    assert Token(generation, epoch + 1, 0) > token
    assert Token(generation + 1, 0, 0) > token


def test_records_of_bins_and_the_workers_own_are_told_apart():
    assert [bin_of(bin_key(table, 300) + b"x") for table in (STATE, DENSE, SIZE)] == [300] * 3
    assert [bin_of(name) for name in (META, OUTBOX + b"results", bin_key(QUEUE, 3))] == [None] * 3


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 200) | st.none())), st.integers(0, 2000))
def test_a_cache_holds_what_was_put_last_and_no_more_than_its_limit(steps, limit):
    cache, truth = Cache(), {}
    for key, size in steps:
        name, value = bin_key(STATE, key), None if size is None else bytes(size)
        cache.put(name, value)
        truth.pop(name, None)
        if value is not None:
            truth[name] = value
        cache.trim(limit)
        assert cache.bytes <= limit
    kept = {name: cache.get(name) for name in truth if cache.get(name) is not None}
    assert kept == {name: truth[name] for name in kept}
    assert list(kept) == list(truth)[len(truth) - len(kept) :], "the longest unused go first"


def test_a_bin_that_is_forgotten_has_no_entry_left():
    cache = Cache()
    for bin_ in (1, 2):
        cache.heads[bin_] = (b"token", None)
        cache.put(bin_key(STATE, bin_), b"value")
    cache.forget({1: 0, 3: 0})
    assert cache.get(bin_key(STATE, 1)) is None
    assert cache.get(bin_key(STATE, 2)) == b"value"
    cache.clear()
    assert (cache.bytes, cache.heads, cache.get(bin_key(STATE, 2))) == (0, {}, None)


def test_the_caches_of_a_process_go_worker_by_worker_when_they_are_too_much():
    first = cache_of("redis://x", "q", 1, 1000)
    first.put(b"a", bytes(2000))
    assert cache_of("redis://x", "q", 1, 1000) is first
    second = cache_of("redis://x", "q", 2, 1000)
    assert cache_of("redis://x", "q", 2, 1000) is second
    assert cache_of("redis://x", "q", 1, 1000) is not first


def test_a_password_is_not_shown():
    assert shown("redis://me:secret@host:1/0") == "redis://host:1/0"
    assert shown("redis://host:1/0") == "redis://host:1/0"


def test_an_address_that_is_none_or_does_not_answer_gets_a_sentence(monkeypatch):
    with pytest.raises(UsageError, match=r"^http://x is no address of a Redis server: use redis://HOST:PORT\.$"):
        connect("http://x")
    monkeypatch.setattr("impls.mechanisms.external.client._RETRIES", 0)
    with pytest.raises(UsageError, match=r"^The Redis server redis://127\.0\.0\.1:1/0 does not answer"):
        check_server("redis://:secret@127.0.0.1:1/0")


def test_the_mechanism_moves_everything_at_once_and_names_its_store():
    controller = Controller(np.array([0, 0, 1, 1], np.int32), catalog.make("external-state"))
    controller.goal = np.array([0, 1, 1, 0], np.int32)
    plan = catalog.make("external-state").plan(controller.view(1))
    assert [(pull.bin, pull.target) for pull in plan.pulls] == [(1, 1), (3, 0)]
    assert plan.routing.tolist() == [0, 1, 1, 0]
    assert catalog.make("external-state", redis="redis://h:1/0").shared.url == "redis://h:1/0"
    with pytest.raises(UsageError, match="needs a Redis server"):
        assert catalog.make("external-state").shared
    with pytest.raises(UsageError, match="cache_bytes cannot be negative"):
        catalog.make("external-state", cache_bytes=-1)


def test_errors_of_state_are_not_taken_for_those_of_the_server():
    from impls.mechanisms.external.client import reach

    with pytest.raises(StateError, match="as it is"), reach("redis://h"):
        raise StateError("as it is")
