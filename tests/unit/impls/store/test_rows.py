"""A bin's entries as rows: the images made of them are those that are read entry by entry, and no damage passes."""

import pytest

from impls.durability.snapshot import image_of
from impls.errors import CorruptStateError
from impls.store.bins import copy_bin
from impls.store.entries import stored_name
from impls.store.environment import Meta, Store, write_meta
from impls.store.moving import entry_rows
from impls.store.pages import leaves_of
from impls.store.state import BinState
from impls.store.tables import STATE, bin_key

BIN, ENTRIES = 3, 2000
KEYS = [n.to_bytes(8, "big") for n in range(ENTRIES)]
OTHER = [(b"another length", b"v"), (b"another length of a name", b"v")]


def fill(store, entries):
    with store.begin() as txn:
        write_meta(txn, Meta.new("q", 0, 0, 0))
        state = BinState(txn, 16)
        for bin_, what in ((BIN - 1, OTHER), (BIN, entries), (BIN + 1, OTHER)):
            state.create_entries(bin_, what)
        state.set_earliest_timer(BIN, 77)  # an item of another table
        state.write_sizes()


def touch(store, keys):
    """Takes the entries of some keys out of their packs."""
    with store.begin() as txn:
        state, bins = BinState(txn, 16), [BIN] * len(keys)
        old = state.get_many(bins, keys)
        state.put_many(bins, keys, [b"changed!"] * len(keys), old)
        state.write_sizes()


def moved(source, target):
    with source.reading(buffers=False) as view, leaves_of(source.path, view) as leaves, target.begin() as txn:
        write_meta(txn, Meta.new("q", 1, 0, 0))
        copy_bin(view, txn, BIN, leaves)


@pytest.fixture
def source(tmp_path):
    with Store.open(tmp_path / "source") as store:
        fill(store, [(key, b"a value!") for key in KEYS])
        yield store


@pytest.fixture
def packed(source, tmp_path):
    with Store.open(tmp_path / "packed") as store:
        moved(source, store)
        yield store


def rows_and_images(store):
    """Returns what `entry_rows` finds, and the images made with and without pages."""
    with store.reading(buffers=False) as view, leaves_of(store.path, view) as leaves:
        assert leaves is not None
        found = entry_rows(view, BIN, ENTRIES, leaves)
        return found, *(image_of(view, BIN, state=True, queue=True, leaves=given) for given in (leaves, None))


@pytest.mark.parametrize("touched", [[], [KEYS[0]], KEYS[::100], KEYS[:700], KEYS])
@pytest.mark.parametrize("kind", ["source", "packed"])
def test_images_are_the_same_whichever_way_entries_are_read(kind, touched, request):
    store = request.getfixturevalue(kind)
    touch(store, touched)
    found, image, slow = rows_and_images(store)
    name_bytes, rows = found
    assert [row[:name_bytes].tobytes() for row in rows] == [stored_name(bin_key(STATE, BIN), key) for key in KEYS]
    assert image == slow
    assert image.entries == ENTRIES + 1, "the timer is one too"


@pytest.mark.parametrize(
    "entries",
    [
        [(key, b"v" * (n % 2)) for n, key in enumerate(KEYS)],
        [(key + b"x" * (n % 3), b"v") for n, key in enumerate(KEYS)],
    ],
    ids=["values of two lengths", "names of three lengths"],
)
def test_what_is_not_of_one_length_is_read_entry_by_entry(tmp_path, entries):
    with Store.open(tmp_path / "state") as store:
        fill(store, entries)
        found, image, slow = rows_and_images(store)
    assert found is None
    assert image == slow


def test_long_entries_that_are_not_packed_are_read_many_at_once_too(tmp_path):
    with Store.open(tmp_path / "state") as store:
        fill(store, [(key, b"long " * 100) for key in KEYS])
        found, image, slow = rows_and_images(store)
    assert found[1].shape == (ENTRIES, len(KEYS[0]) + 3 + 500 + 4)
    assert image == slow


def test_few_entries_are_read_one_by_one(source):
    with source.reading(buffers=False) as view, leaves_of(source.path, view) as leaves:
        assert entry_rows(view, BIN, 10, leaves) is None
        assert entry_rows(view, BIN, ENTRIES, None) is None


@pytest.mark.parametrize("touched", [[], KEYS[:700]])
@pytest.mark.parametrize("kind", ["source", "packed"])
def test_a_damaged_entry_never_becomes_an_image(kind, touched, request):
    store = request.getfixturevalue(kind)
    touch(store, touched)
    with store.begin() as txn:
        cursor = txn.cursor()
        assert cursor.set_range(stored_name(bin_key(STATE, BIN), KEYS[5]) if kind == "source" or touched else b"\x00")
        while b"value!" not in bytes(cursor.value()) and b"changed!" not in bytes(cursor.value()):
            assert cursor.next()
        name, value = bytes(cursor.key()), bytearray(cursor.value())
        value[value.index(b"!")] ^= 1
        txn.put(name, bytes(value))
    with store.reading(buffers=False) as view, leaves_of(store.path, view) as leaves, pytest.raises(CorruptStateError):
        image_of(view, BIN, state=True, queue=True, leaves=leaves)
