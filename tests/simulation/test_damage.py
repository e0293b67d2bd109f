"""Flipped bits hit stored keys and values and nothing else, and an environment hit so is never believed."""

import sys
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
