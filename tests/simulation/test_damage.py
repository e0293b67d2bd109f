"""Flipped bits hit stored keys and values and nothing else, and an environment hit so is never believed."""

import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from chaos.pages import leaf_nodes

from impls.durability.snapshot import image_of
from impls.errors import CorruptStateError
from impls.store.bins import drop_bin
from impls.store.environment import Store
from impls.store.offsets import Offsets
from impls.store.state import BinState
from impls.store.tables import DENSE, DUE, OFFSETS, bin_key

ENTRIES = 60


@pytest.fixture
def environment(tmp_path):
    with Store.open(tmp_path / "worker") as store, store.begin() as txn:
        state = BinState(txn, 4)
        for bin_ in range(3):
            state.create_entries(bin_, ((bytes([n]) * 40, bytes([bin_])) for n in range(ENTRIES)))
        state.create_dense(3, 600)
        state.write_sizes()
    return tmp_path / "worker"


def _flip(environment, name, bit):
    file = environment / "data.mdb"
    raw = bytearray(file.read_bytes())
    for node in list(leaf_nodes(raw, 4096)):
        if node.key(raw) == name:
            raw[node.key_at + bit // 8] ^= 1 << bit % 8
    file.write_bytes(raw)


def test_every_item_is_found_in_the_file(environment):
    with Store.open(environment) as store, store.reading() as txn:
        items = {(bytes(name), bytes(value)) for name, value in txn.cursor().iternext()}
        page_bytes = store.env.stat()["psize"]
    raw = (environment / "data.mdb").read_bytes()
    assert items <= {(node.key(raw), node.value(raw)) for node in leaf_nodes(raw, page_bytes)}
    assert len(items) == 3 * ENTRIES + 2 + 4


PREFIX = b"\x01\x00\x01"  # the state of bin 1


@pytest.mark.parametrize("entry", range(0, ENTRIES, 7))
@pytest.mark.parametrize("bit", [0, 7, 14, 23, 60])
def test_a_bin_with_a_damaged_key_is_dropped_whole_or_not_at_all(environment, entry, bit):
    _flip(environment, PREFIX + bytes([entry]) * 40, bit)
    with Store.open(environment) as store:
        txn = store.begin()
        try:
            drop_bin(txn, 1, whole=True)
        except CorruptStateError:
            return
        finally:
            left = [bytes(name) for name, _ in txn.cursor().iternext() if bytes(name).startswith(PREFIX)]
            txn.abort()
    assert not left, f"{len(left)} entries would come back to life with the bin"


@pytest.mark.parametrize("entry", range(0, ENTRIES, 7))
@pytest.mark.parametrize("bit", [0, 1, 7, 14, 23, 60])
def test_an_entry_beside_a_damaged_key_is_found_or_refused(environment, entry, bit):
    _flip(environment, PREFIX + bytes([entry]) * 40, bit)
    with Store.open(environment) as store, store.reading() as txn:
        state, refused = BinState(txn, 4), 0
        for n in range(ENTRIES):
            try:
                assert state.get(1, bytes([n]) * 40) == b"\x01"
            except CorruptStateError:
                refused += 1
    assert refused


RANGES = {
    "scan": lambda state: state.scan(1, bytes([10]), bytes([50])),
    "first": lambda state: state.first(1, bytes([10]), bytes([50])),
    "turn": lambda state: (state.turn(1, 1, lambda _key, value: value + b"!"), sorted(state.changes.names))[1],
}


@pytest.mark.parametrize("read", RANGES.values(), ids=RANGES)
@pytest.mark.parametrize("entry", [0, 9, 10, 31, 49, 50, 59])
@pytest.mark.parametrize("bit", [0, 5, 7, 10, 14, 23, 30, 60])
def test_a_range_with_a_damaged_key_in_it_is_read_whole_or_refused(environment, read, entry, bit):
    with Store.open(environment) as store:
        txn = store.begin()
        sound = read(BinState(txn, 4))
        txn.abort()
    _flip(environment, PREFIX + bytes([entry]) * 40, bit)
    with Store.open(environment) as store:
        txn = store.begin()
        try:
            assert read(BinState(txn, 4)) == sound
        except CorruptStateError:
            return
        finally:
            txn.abort()
    assert read is not RANGES["turn"], "the damaged entry is one that takes another shape"


SPREAD = [(16 * n).to_bytes(2, "big") * 4 for n in range(40)]


@pytest.fixture
def one_page(tmp_path):
    with Store.open(tmp_path / "page") as store, store.begin() as txn:
        state = BinState(txn, 4)
        state.create_entries(1, [(key, b"1") for key in SPREAD])
        state.write_sizes()
    return tmp_path / "page"


@pytest.mark.parametrize("new", [1, 3])
@pytest.mark.parametrize("entry", range(0, len(SPREAD), 3))
@pytest.mark.parametrize("bit", [1, 5, 14, 30])
def test_no_commit_writes_an_entry_beside_one_that_it_has_read(one_page, entry, bit, new):
    """With each entry that comes a search takes another way, and meets a damaged key that none has met when it read."""
    _flip(one_page, PREFIX + SPREAD[entry], bit)
    with Store.open(one_page) as store:
        txn = store.begin()
        try:
            _write_what_can_be_read(txn, [(16 * len(SPREAD) + n).to_bytes(2, "big") * 4 for n in range(new)])
        except CorruptStateError:
            return
        finally:
            names = [bytes(name) for name, _ in txn.cursor().iternext()]
            txn.abort()
    assert len(set(names)) == len(names)


def _write_what_can_be_read(txn, new):
    """Writes each entry of bin 1 and the new ones in one commit, without those that are refused."""
    state, found = BinState(txn, 4), {}
    for key in [*SPREAD, *new]:
        with suppress(CorruptStateError):
            found[key] = state.get(1, key)
    state.put_many([1] * len(found), list(found), [b"2"] * len(found), list(found.values()))
    state.write_sizes()


@pytest.mark.parametrize("bit", range(7 * 8))
@pytest.mark.parametrize("block", [0, 1])
def test_a_block_with_a_damaged_name_is_in_no_image(environment, block, bit):
    _flip(environment, bin_key(DENSE, 3) + block.to_bytes(4, "big"), bit)
    with Store.open(environment) as store, store.reading(buffers=False) as txn, pytest.raises(CorruptStateError):
        image_of(txn, 3, state=True, queue=False)


@pytest.mark.parametrize("bin_", range(4))
@pytest.mark.parametrize("bit", [0, 5, 7, 14, 15, 22])
def test_timers_and_offsets_with_a_damaged_key_are_read_whole_or_refused(tmp_path, bin_, bit):
    path, marked = tmp_path / "worker", np.ones(4, np.bool_)
    with Store.open(path) as store, store.begin() as txn:
        state = BinState(txn, 4)
        for other in range(4):
            state.set_earliest_timer(other, 5)
            state.put_offsets([other], [0], [(9, 1)], new=[True])
        state.write_sizes()
    reads = [
        (DUE, b"", lambda txn: BinState(txn, 4).bins_with_timers(marked, 10)),
        (OFFSETS, bytes(8), lambda txn: Offsets(4).load(txn)),
    ]
    for table, more, read in reads:
        raw = (path / "data.mdb").read_bytes()
        _flip(path, bin_key(table, bin_) + more, bit)
        with Store.open(path) as store, store.reading() as txn, pytest.raises(CorruptStateError):
            read(txn)
        (path / "data.mdb").write_bytes(raw)
