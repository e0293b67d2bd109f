"""Entries as stored: many at once are what each is by itself, and no damaged one is taken for whole."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from impls.errors import CorruptStateError
from impls.protocol.arrays import MAX_BINS
from impls.store.entries import (
    open_entries,
    open_value,
    open_values,
    stored_entry,
    stored_name,
    stored_names,
    stored_values,
    with_keys,
    without_keys,
)
from impls.store.environment import Store
from impls.store.state import BinState
from impls.store.tables import STATE, bin_key

LONG = bytes(range(200)) * 3
keys_of_entries = st.one_of(st.binary(max_size=40), st.sampled_from([LONG[:n] for n in (478, 479, 480, 481)]))
entries = st.lists(st.tuples(st.integers(0, MAX_BINS - 1), keys_of_entries, st.binary(max_size=40)), max_size=40)


@given(entries)
def test_many_are_stored_and_read_as_each_is(found):
    bins, keys, values = ([entry[place] for entry in found] for place in range(3))
    names, long = stored_names(bins, keys)
    assert names == [stored_name(bin_key(STATE, bin_), key) for bin_, key in zip(bins, keys, strict=True)]
    assert long == any(len(key) > 479 for key in keys)
    stored = stored_values(names, with_keys(keys, values))
    items = list(zip(names, stored, strict=True))
    assert items == [stored_entry(*entry) for entry in found]
    assert open_values(names, stored) == [open_value(*item) for item in items]
    assert without_keys(keys, open_values(names, stored)) == values
    assert open_entries(items) == list(zip(keys, values, strict=True))
    nothing = [None] * len(keys)
    assert with_keys(keys, nothing) == without_keys(keys, nothing) == nothing


def test_long_keys_are_told_apart_by_their_end():
    names, _ = stored_names([1, 1, 1], [LONG + b"a", LONG + b"b", b"short"])
    assert len(set(names)) == 3
    assert max(map(len, names)) == 3 + 480
    assert names[0] == stored_name(bin_key(STATE, 1), LONG + b"a")


@given(st.lists(st.binary(min_size=0, max_size=3), min_size=1, max_size=5), st.integers(470, 520))
def test_no_two_keys_have_one_name_not_even_a_key_that_is_another_ones_name(ends, length):
    keys = {(LONG + end)[-length:] for end in ends} | {LONG[: length + n] for n in range(-5, 6)}
    prefix = bin_key(STATE, 1)
    for _ in range(3):
        keys |= {stored_name(prefix, key)[len(prefix) :] for key in keys}
    assert len({stored_name(prefix, key) for key in keys}) == len(keys)


def test_a_key_that_is_the_name_of_a_longer_one_has_a_state_of_its_own(tmp_path):
    longer = LONG + b"a"
    name = stored_name(bin_key(STATE, 1), longer)[3:]
    with Store.open(tmp_path) as store, store.begin() as txn:
        state = BinState(txn, 4)
        state.put_many([1, 1], [longer, name], [b"of the longer", b"of its name"], [None, None])
        assert state.get_many([1, 1], [longer, name]) == [b"of the longer", b"of its name"]
        state.put_many([1], [longer], [b"longer"], [b"of the longer"])
        state.turn(1, 1, lambda key, value: value + key[-1:])
        assert state.scan(1, b"", b"\xff") == [(longer, b"longera"), (name, b"of its name" + name[-1:])]
        state.create_entries(2, [(longer, b"new")])
        assert state.get(2, longer) == b"new"
        [before, new] = [size for _, size in state.write_sizes()]
        state.delete(1, longer)
        state.delete(2, longer)
        state.delete(1, name)
        assert [size for _, size in state.write_sizes()] == [8, 0]  # the shape is left
        assert before > new > len(longer)


@given(st.data())
def test_one_flipped_bit_among_many_is_seen(data):
    names, _ = stored_names(range(20), [b"key"] * 20)
    stored = stored_values(names, [bytes([n] * n) for n in range(20)])
    which = data.draw(st.integers(0, 19))
    side = data.draw(st.sampled_from([names, stored]))
    bit = data.draw(st.integers(0, len(side[which]) * 8 - 1))
    side[which] = (int.from_bytes(side[which], "big") ^ 1 << bit).to_bytes(len(side[which]), "big")
    with pytest.raises(CorruptStateError, match="is damaged"):
        open_values(names, stored)


@pytest.mark.parametrize("stored", [b"", b"abc"])
def test_what_is_too_short_for_a_checksum_is_damaged(stored):
    with pytest.raises(CorruptStateError, match="is damaged"):
        open_values([b"s\x00\x01key"], [stored])
