"""The router: every record goes to its bin's worker by the routing in force, and a switch falls between two blobs."""

import threading

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from impls.errors import StateError
from impls.protocol.session import Route, Routed
from impls.realtime.blobs import Router, decode

BINS, SLOTS, PARTITION = 8, 3, 6
SCHEMA = pa.schema([("bin", pa.int32()), ("partition", pa.int32()), ("offset", pa.int64())])

routings = st.lists(st.integers(0, SLOTS - 1), min_size=BINS, max_size=BINS).map(lambda w: np.array(w, np.int32))
bins = st.lists(st.integers(0, BINS - 1), max_size=30)
steps = st.lists(st.tuples(routings, st.lists(bins, min_size=1, max_size=3)), min_size=1, max_size=4)


def batch(of: list[int | None], first: int) -> pa.RecordBatch:
    offsets = range(first, first + len(of))
    columns = [pa.array(of, pa.int32()), pa.array([PARTITION] * len(of), pa.int32()), pa.array(offsets, pa.int64())]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def rows(raw: bytes) -> list[tuple[int, int]]:
    table = decode(raw, SCHEMA).table
    return list(zip(table["bin"].to_pylist(), table["offset"].to_pylist(), strict=True))


@given(steps)
def test_each_record_goes_to_its_worker_in_order_and_is_counted(given_steps):
    router, offset = Router(1, SLOTS), 0
    got: dict[int, list[bytes]] = {slot: [] for slot in range(SLOTS)}
    expected: dict[int, list[tuple[int, int]]] = {slot: [] for slot in range(SLOTS)}
    for tick, (routing, packs) in enumerate(given_steps):
        behind = ((PARTITION, offset),) if any(got.values()) else ()
        assert router.switch(Route(tick, routing)) == Routed(tick, tuple(len(got[s]) for s in range(SLOTS)), behind)
        batches = []
        for pack in packs:
            batches.append(batch(pack, offset))
            for bin_, at in zip(pack, range(offset, offset + len(pack)), strict=True):
                expected[int(routing[bin_])].append((bin_, at))
            offset += len(pack)
        for slot, raw in router.pack(batches):
            got[slot].append(raw)
            blob = decode(raw, SCHEMA)
            assert (blob.source, blob.number, blob.tick) == (1, len(got[slot]), tick)
    assert {slot: [row for raw in raws for row in rows(raw)] for slot, raws in got.items()} == expected


def test_rows_without_a_bin_are_left_out():
    router = Router(0, 1)
    router.switch(Route(0, np.zeros(BINS, np.int32)))
    [(slot, raw)] = router.pack([batch([None, 3, None], 0), batch([None], 3)])
    assert (slot, rows(raw)) == (0, [(3, 1)])
    assert router.pack([batch([None], 4)]) == []
    assert router.switch(Route(1, np.zeros(BINS, np.int32))).next == ((PARTITION, 2),)


def test_nothing_is_packed_before_a_routing_and_none_beyond_the_slots_is_taken():
    router = Router(0, 2)
    with pytest.raises(StateError, match="before the first routing"):
        router.pack([batch([1], 0)])
    with pytest.raises(StateError, match="worker 2, but this query has 2 slots"):
        router.switch(Route(0, np.full(BINS, 2, np.int32)))


def test_what_a_switch_counts_is_what_was_routed_before_it_while_another_thread_packs():
    router = Router(0, 2)
    router.switch(Route(0, np.zeros(BINS, np.int32)))
    raws: list[tuple[int, bytes]] = []

    def pack() -> None:
        for i in range(2000):
            raws.extend(router.pack([batch([i % BINS], i)]))

    thread = threading.Thread(target=pack)
    thread.start()
    answers = [router.switch(Route(tick, np.full(BINS, tick % 2, np.int32))) for tick in range(1, 100)]
    thread.join(60)
    assert not thread.is_alive()
    got = [(slot, decode(raw, SCHEMA)) for slot, raw in raws]
    for answer in answers:
        assert all(blob.tick < answer.tick for slot, blob in got if blob.number <= answer.sent[slot])
        assert all(blob.tick >= answer.tick for slot, blob in got if blob.number > answer.sent[slot])


def test_as_many_are_admitted_as_each_slot_has_room_for():
    router = Router(0, 2)
    with pytest.raises(StateError, match="before the first routing"):
        router.admitted(batch([0, 1], 0), np.array([1, 1]))
    router.switch(Route(0, np.array([0, 1], np.int32)))
    five = batch([0, 1, 0, 0, 1], 0)
    room = {(3, 2): 5, (2, 9): 3, (9, 1): 4, (0, 9): 0, (-5, -5): 0}
    assert {slots: router.admitted(five, np.array(slots)) for slots in room} == room
    assert router.admitted(batch([0, 0], 0), np.array([2, -5])) == 2
    router.pack([five])
    assert router.packed().tolist() == [3, 2]
    assert router.packed().tolist() == [0, 0]


def _taken(to: list[int], room: list[int]) -> int:
    """The records before the first one whose slot has no room left, one by one."""
    left = list(room)
    for place, slot in enumerate(to):
        left[slot] -= 1
        if left[slot] < 0:
            return place
    return len(to)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=20), st.lists(st.integers(-9, 9), min_size=4, max_size=4))
def test_what_is_admitted_is_what_a_count_one_by_one_admits(to, room):
    router = Router(0, 4)
    router.switch(Route(0, np.arange(4, dtype=np.int32)))
    assert router.admitted(batch(to, 0), np.array(room)) == _taken(to, room)
