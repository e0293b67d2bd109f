"""Values, lists, maps and timers of a key: what is written is read, within an epoch and in the next one."""

import numpy as np
import pytest

from impls.errors import CorruptStateError, UsageError
from impls.operators import KeyedProcess
from impls.protocol.eventtime import EventTime
from impls.store.bins import copy_bin, drop_bin, read_size, verify_items
from impls.store.environment import Store
from impls.store.keyed import Keyed
from impls.store.state import BinState
from impls.store.tables import DUE, bin_key

BINS = 16
ALL = np.ones(BINS, bool)


@pytest.fixture
def txn(tmp_path):
    with Store.open(tmp_path / "one") as store:
        txn = store.begin()
        yield txn
        txn.abort()


def keyed_of(txn):
    return Keyed(BinState(txn, BINS))


def flushed(keyed):
    keyed.flush()
    keyed._state.write_sizes()


def stored_bytes(txn, bin_):
    return sum(
        len(v) for k, v in txn.cursor().iternext() if bytes(k)[1:3] == bin_.to_bytes(2, "big") and k[0] in {1, 6}
    )


def test_values_are_read_as_written_at_once_and_in_the_next_epoch(txn):
    keyed = keyed_of(txn)
    keyed.set_value(3, b"k", {"a": [1, None]})
    keyed.set_value(3, b"k", 7, "other")
    keyed.set_value(4, b"k", 1)
    keyed.set_value(4, b"k", None)
    assert [keyed.value(3, b"k"), keyed.value(3, b"k", "other"), keyed.value(4, b"k")] == [{"a": [1, None]}, 7, None]
    flushed(keyed)
    later = keyed_of(txn)
    later.load([3, 4], [b"k", b"k"])
    assert [later.value(3, b"k"), later.value(3, b"k", "other"), later.value(4, b"k")] == [{"a": [1, None]}, 7, None]


def test_lists_keep_their_order_over_epochs_and_are_cleared(txn):
    for part in ([0, 1], [2], list(range(3, 300))):
        keyed = keyed_of(txn)
        for item in part:
            keyed.append(3, b"k", item)
        flushed(keyed)
    keyed = keyed_of(txn)
    keyed.append(3, b"k\0", "another key")
    assert keyed.items(3, b"k") == list(range(300))
    keyed.clear(3, b"k")
    keyed.append(3, b"k", "anew")
    assert keyed.items(3, b"k") == ["anew"]
    assert keyed.items(3, b"k\0") == ["another key"]


def test_maps_give_their_fields_in_order_and_do_not_mix(txn):
    keyed = keyed_of(txn)
    for field in (b"b", b"a", b"\xff" * 9):
        keyed.set_field(3, b"k", field, field.hex())
    keyed.set_field(3, b"kb", b"", 1)
    flushed(keyed)
    later = keyed_of(txn)
    later.set_field(3, b"k", b"aa", 5)
    later.set_field(3, b"k", b"b", None)
    assert [f for f, _ in later.fields(3, b"k")] == [b"a", b"aa", b"\xff" * 9]
    assert [f for f, _ in later.fields(3, b"k", within=(b"", b"aa"))] == [b"a"]
    assert [f for f, _ in later.fields(3, b"k", within=(b"aa", b"\xff" * 9))] == [b"aa"]
    later.clear_fields(3, b"k")
    assert later.fields(3, b"k") == []
    assert later.field(3, b"kb", b"") == 1


def test_timers_fire_by_time_then_key_with_those_set_or_cancelled_meanwhile(txn):
    keyed, fired = keyed_of(txn), []
    for time, key in [(5, b"b"), (5, b"a"), (-3, b"z"), (9, b"c"), (7, b"d"), (5, b"a")]:
        keyed.set_timer(3, time, key)
    flushed(keyed)
    keyed = keyed_of(txn)

    def call(bin_, time, key):
        fired.append((time, key))
        if key == b"a":
            keyed.cancel_timer(3, 5, b"b")
            keyed.set_timer(3, 6, b"new")
            keyed.set_timer(3, 2, b"past")

    assert keyed.fire(keyed._state.bins_with_timers(ALL, 8), 8, call) == 5
    assert fired == [(-3, b"z"), (5, b"a"), (2, b"past"), (6, b"new"), (7, b"d")]
    flushed(keyed)
    assert keyed._state.bins_with_timers(ALL, 8) == []
    assert keyed._state.bins_with_timers(ALL, 9) == [3]


def test_firing_in_two_steps_is_firing_in_one(tmp_path):
    orders = []
    for number, steps in enumerate(([20], [4, 11, 20])):
        with Store.open(tmp_path / str(number)) as store, store.begin() as txn:
            keyed, fired = keyed_of(txn), []

            def call(bin_, time, key, keyed=keyed, fired=fired):
                fired.append((time, key))
                if time < 12:
                    keyed.set_timer(bin_, time + 3, key)

            for time in range(6):
                keyed.set_timer(1, time, b"%d" % (9 - time))
            keyed.flush()
            for until in steps:
                keyed.fire(keyed._state.bins_with_timers(ALL, until), until, call)
                keyed.flush()
            orders.append(fired)
    assert orders[0] == orders[1]
    assert len(orders[0]) > 20


def test_only_bins_asked_for_are_due(txn):
    keyed = keyed_of(txn)
    for bin_ in range(BINS):
        keyed.set_timer(bin_, bin_, b"k")
    flushed(keyed)
    assert keyed._state.bins_with_timers(np.arange(BINS) % 2 == 0, 5) == [0, 2, 4]


def test_what_is_written_as_it_stands_is_not_logged(txn):
    def write(keyed, bids):
        keyed.set_value(3, b"k", {"a": 1})
        keyed.set_field(3, b"m", b"f", bids)
        keyed.set_timer(3, 5, b"k")
        keyed.set_timer(3, 9, b"gone")
        keyed.cancel_timer(3, 9, b"gone")
        flushed(keyed)
        return keyed._state.changes.names

    assert len(write(keyed_of(txn), 1)) == 4  # value, field, timer, and the earliest timer of the bin
    assert write(keyed_of(txn), 1) == []
    assert len(write(keyed_of(txn), 2)) == 1
    assert keyed_of(txn)._state.bins_with_timers(ALL, 5) == [3]


def test_everything_counts_in_the_size_of_its_bin_and_moves_with_it(tmp_path, txn):
    keyed = keyed_of(txn)
    for n in range(40):
        keyed.set_timer(3, n, b"k")
        keyed.append(3, b"k", n)
        keyed.set_field(3, b"m", b"%d" % n, n)
    keyed.set_value(3, b"v", "x" * 100)
    flushed(keyed)
    keyed.cancel_timer(3, 0, b"k")
    flushed(keyed)
    assert read_size(txn, 3)[1] == stored_bytes(txn, 3)
    with Store.open(tmp_path / "two") as store, store.begin() as other:
        copy_bin(txn, other, 3)
        moved = keyed_of(other)
        assert moved._state.bins_with_timers(ALL, 1) == [3]
        assert moved.items(3, b"k") == list(range(40))
        drop_bin(other, 3)
        assert moved._state.bins_with_timers(ALL, 100) == []
        assert read_size(other, 3) == (0, 0)


@pytest.mark.parametrize("at", [0, 7, 8])
def test_a_damaged_time_of_the_earliest_timer_is_found(txn, at):
    keyed = keyed_of(txn)
    keyed.set_timer(3, 5, b"k")
    flushed(keyed)
    name = bin_key(DUE, 3)
    raw = bytearray(txn.get(name))
    raw[at] ^= 4
    txn.put(name, bytes(raw))
    with pytest.raises(CorruptStateError, match="earliest timer"):
        keyed_of(txn)._state.bins_with_timers(ALL, 9)
    items = [(bytes(k), bytes(v)) for k, v in txn.cursor().iternext() if k[0] in {1, 6}]
    with pytest.raises(CorruptStateError):
        verify_items([k for k, _ in items], [v for _, v in items])


def test_a_damaged_timer_is_found_when_it_is_due(txn):
    keyed = keyed_of(txn)
    keyed.set_timer(3, 5, b"k")
    flushed(keyed)
    name = next(bytes(k) for k, _ in txn.cursor().iternext() if k[0] == 1)
    txn.put(name, b"\0\0\0\0")
    with pytest.raises(CorruptStateError):
        keyed_of(txn).fire([3], 9, lambda *_: None)


@pytest.mark.parametrize("length", [0, 1, 150, 151, 5000])
def test_keys_and_fields_of_any_length_come_back(txn, length):
    key, other = b"k" * length, b"k" * (length + 1)
    keyed, fired = keyed_of(txn), []
    for one in (key, other):
        keyed.set_timer(3, 5, one)
        keyed.set_value(3, one, len(one))
        keyed.append(3, one, [len(one)])
        keyed.set_field(3, one, one, {"of": len(one)})
    flushed(keyed)
    keyed = keyed_of(txn)
    assert keyed.fire([3], 5, lambda *timer: fired.append(timer)) == 2
    assert sorted(fired) == [(3, 5, key), (3, 5, other)]
    for one in (key, other):
        assert (keyed.value(3, one), keyed.items(3, one)) == (len(one), [[len(one)]])
        assert keyed.fields(3, one) == [(one, {"of": len(one)})]
        assert keyed.field(3, one, one) == {"of": len(one)}


class Counts(KeyedProcess):
    event_time = EventTime("at")
    columns = ("at",)

    def record(self, record, one):
        raise NotImplementedError


@pytest.mark.parametrize("length", [1, 150, 151, 5000])
def test_values_items_and_fields_of_any_key_are_turned_and_timers_stay(txn, length):
    key = b"k" * length
    keyed = keyed_of(txn)
    keyed.set_value(3, key, 1, "v")
    for item in (2, None, 3):
        keyed.append(3, key, item, "l")
    keyed.set_field(3, key, key, 4, "m")
    keyed.set_field(3, key, b"gone", 0, "m")
    keyed.set_timer(3, 9, key)
    flushed(keyed)
    seen = []

    def migrate(value, name):
        seen.append((name, value))
        return {"was": value} if value else None

    operator, state = Counts(), BinState(txn, BINS)
    state.turn(3, 1, lambda name, raw: operator.turned(name, raw, operator, migrate))
    state.write_sizes()
    assert sorted(seen, key=str) == [("l", 2), ("l", 3), ("l", None), ("m", 0), ("m", 4), ("v", 1)]
    keyed = keyed_of(txn)
    assert keyed.value(3, key, "v") == {"was": 1}
    assert keyed.items(3, key, "l") == [{"was": 2}, {"was": 3}], "one that is left out leaves the others in order"
    assert keyed.fields(3, key, "m") == [(key, {"was": 4})]
    keyed.append(3, key, "last", "l")
    assert keyed.items(3, key, "l")[-1] == "last"
    assert keyed._state.bins_with_timers(ALL, 9) == [3]


def test_the_name_of_a_variable_that_is_too_long_is_refused(txn):
    with pytest.raises(UsageError, match="longer than 100 bytes"):
        keyed_of(txn).set_value(3, b"k", 1, "n" * 101)
