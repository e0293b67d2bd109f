"""The packer in the JVM: it packs what the model packs, blob by blob, and numbers the rows of a record."""

import threading
from collections.abc import Sequence
from functools import partial
from itertools import islice

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packing import PLENTY, SLOTS, Packer
from py4j.protocol import Py4JJavaError
from router import Router
from switchboards import DEADLINE_S

from impls.protocol.session import Route

pytestmark = pytest.mark.spark
BINS, POOL = 8, 40
LARGE = 30_000  # characters
EVERY_TYPE = (
    "int(if(id % 7 = 3, null, id % 8)) bin", "id % 2 partition", "id div 6 offset", "id number",
    "if(id % 3 = 0, null, id) time", "unhex(hex(id)) key", "id % 2 = 0 yes",
    "cast(id as tinyint) tiny", "cast(id as smallint) small", "cast(id / 3 as float) single", "id / 7 double",
    "cast(id / 3 as decimal(20, 4)) price", "if(id % 5 = 0, null, concat('é', id)) text",
    "date_from_unix_date(int(id)) day", "timestamp_micros(id * 1000003) at",
    "cast(timestamp_micros(id) as timestamp_ntz) there", "make_dt_interval(int(id)) lasts",
    "transform(sequence(0, id % 4), n -> nullif(n, 1)) list", "map('a', id, 'b', null) named",
    "if(id % 4 = 1, null, struct(nullif(id, 5) as a, nullif(string(id), '6') as b)) nested", "0L rescale_row",
)  # fmt: skip


@pytest.fixture(scope="module")
def pool(spark):
    """Records of every type that columns have, as the JVM's rows and as Arrow's."""
    df = spark.range(0, POOL, 1, 1).selectExpr(*EVERY_TYPE)
    packer = Packer(spark, df)
    table = df.toArrow().cast(packer.arrow).combine_chunks()
    return packer, table.to_batches()[0]


@pytest.fixture
def made(spark, pool):
    return partial(Packer, spark, pool[0].df, rows=pool[0].rows)


routings = st.lists(st.integers(0, SLOTS - 1), min_size=BINS, max_size=BINS).map(lambda w: np.array(w, np.int32))
numbers = st.integers(0, 30)
rooms = st.just(PLENTY) | st.lists(st.integers(-3, 9), min_size=SLOTS, max_size=SLOTS)
steps = st.lists(st.tuples(routings, numbers, rooms), min_size=1, max_size=4)
places = st.sets(st.integers(0, POOL - 1), min_size=10).map(sorted)  # offsets grow, and a row comes once


def one_by_one(bins: Sequence[int | None], routing: np.ndarray, room: Sequence[int]) -> tuple[int, list[int]]:
    """(records before the first one whose slot has no room left, room that is left then)."""
    left = list(room)
    for place, bin_ in enumerate(bins):
        if bin_ is None:
            continue
        slot = int(routing[bin_])
        if left[slot] <= 0:
            return place, left
        left[slot] -= 1
    return len(bins), left


@settings(max_examples=50)
@given(given_steps=steps, all_places=places)
def test_it_packs_what_the_model_packs_blob_by_blob(pool, spark, given_steps, all_places):
    packer, model, left_over = Packer(spark, pool[0].df, rows=pool[0].rows), Router(4, SLOTS), iter(all_places)
    for epoch, (routing, number, room) in enumerate(given_steps):
        chosen = list(islice(left_over, number))
        assert packer.switch(Route(epoch, routing)) == model.switch(Route(epoch, routing))
        records = pool[1].take(pa.array(chosen, pa.int64()))
        taken, left, blobs = packer.pack(chosen, room, (10 + epoch, 20 + epoch))
        assert (taken, left) == one_by_one(records["bin"].to_pylist(), routing, room)
        expected = model.pack([records.slice(0, taken)], came_us=10 + epoch, packed_us=20 + epoch)
        assert [slot for slot, _ in blobs] == [slot for slot, _ in expected]
        for (_, raw), (_, wanted) in zip(blobs, expected, strict=True):
            assert packer.decoded(raw) == packer.decoded(wanted)
            assert raw[:4] == wanted[:4]


def test_each_record_goes_to_its_worker_in_order(made):
    packer, got = made(), {slot: [] for slot in range(SLOTS)}
    routing = np.arange(BINS, dtype=np.int32) % SLOTS
    packer.switch(Route(0, routing))
    for first in range(0, POOL, 10):
        for slot, raw in packer.pack(range(first, first + 10))[2]:
            got[slot] += packer.decoded(raw).table["number"].to_pylist()
    bins = {place: place % 8 for place in range(POOL) if place % 7 != 3}
    assert got == {slot: [place for place, bin_ in bins.items() if routing[bin_] == slot] for slot in range(SLOTS)}


def test_rows_without_a_bin_are_left_out_and_their_records_read(made):
    packer = made()
    packer.switch(Route(0, np.zeros(BINS, np.int32)))
    assert packer.pack([3, 10])[0::2] == (2, [])
    taken, _, [(slot, raw)] = packer.pack([3, 5, 10])
    table = packer.decoded(raw).table
    assert (taken, slot, table["number"].to_pylist(), table["rescale_row"].to_pylist()) == (3, 0, [5], [0])
    assert packer.switch(Route(1, np.zeros(BINS, np.int32))).next == ((0, 1), (1, 0))


def test_rows_of_a_record_are_numbered_also_across_blobs_and_it_is_needed_until_another_one_comes(made):
    packer = made()
    packer.switch(Route(0, np.zeros(BINS, np.int32)))
    rows = [packer.decoded(packer.pack(places)[2][0][1]).table for places in ([0, 2], [4, 6], [8])]
    assert [(r["offset"].to_pylist(), r["rescale_row"].to_pylist()) for r in rows] == [
        ([0, 0], [0, 1]), ([0, 1], [2, 0]), ([1], [1])
    ]  # fmt: skip
    assert packer.switch(Route(1, np.zeros(BINS, np.int32))).next == ((0, 1),)


def test_an_offset_that_falls_or_comes_twice_is_an_error(made, spark):
    packer, plain = (
        made(),
        Packer(spark, spark.range(0, 4, 1, 1).selectExpr("int(id) bin", "0L partition", "id offset")),
    )
    for one in (packer, plain):
        one.switch(Route(0, np.zeros(BINS, np.int32)))
    packer.pack([12])
    with pytest.raises(Py4JJavaError, match="partition 0 has offset 1 behind offset 2: offsets must grow"):
        packer.pack([6])
    plain.pack([1])
    with pytest.raises(Py4JJavaError, match="partition 0 has offset 1 behind offset 1"):
        plain.pack([1])


@pytest.mark.parametrize("name", ["partition", "offset"])
def test_a_row_without_partition_or_offset_is_packed_and_counts_for_none(spark, name):
    columns = [f"if(id = 2, null, id) {one}" if one == name else f"id {one}" for one in ("partition", "offset")]
    packer = Packer(spark, spark.range(1, 4, 1, 1).selectExpr("int(0) bin", *columns))
    packer.switch(Route(0, np.zeros(BINS, np.int32)))
    raw = packer.pack([0, 1, 2])[2][0][1]
    assert packer.decoded(raw).table[name].to_pylist() == [1, None, 3]
    assert packer.switch(Route(1, np.zeros(BINS, np.int32))).next == ((1, 2), (3, 4))


def test_nothing_is_packed_before_a_routing_and_none_beyond_the_slots_is_taken(made):
    packer = made()
    with pytest.raises(Py4JJavaError, match="before the first routing"):
        packer.pack([1])
    with pytest.raises(Py4JJavaError, match="worker 3, but this query has 3 slots"):
        packer.switch(Route(0, np.full(BINS, 3, np.int32)))


def test_a_large_record_and_thousands_of_bins(spark):
    bins = 5_000
    df = spark.range(0, bins, 1, 1).selectExpr("int(id) bin", "0L partition", "id offset", f"repeat('x', {LARGE}) text")
    packer = Packer(spark, df.where(f"bin in (0, {bins - 1})"))
    routing = np.zeros(bins, np.int32)
    routing[-1] = 2
    packer.switch(Route(0, routing))
    (first, low), (last, high) = packer.pack([0, 1])[2]
    assert (first, last) == (0, 2)
    assert packer.decoded(low).table["text"].to_pylist() == ["x" * LARGE]
    assert packer.decoded(high).table["bin"].to_pylist() == [bins - 1]


def test_what_a_switch_counts_is_what_was_routed_before_it_while_another_thread_packs(made):
    packer, raws = made(), []
    packer.switch(Route(0, np.zeros(BINS, np.int32)))

    def pack() -> None:
        for place in range(300):
            raws.extend(packer.pack([place % 3])[2])

    thread = threading.Thread(target=pack)
    thread.start()
    answers = [packer.switch(Route(epoch, np.full(BINS, epoch % 2, np.int32))) for epoch in range(1, 60)]
    thread.join(DEADLINE_S)
    assert not thread.is_alive()
    got = [(slot, packer.decoded(raw)) for slot, raw in raws]
    assert len(got) == 300
    for answer in answers:
        assert all(blob.epoch < answer.epoch for slot, blob in got if blob.number <= answer.sent[slot])
        assert all(blob.epoch >= answer.epoch for slot, blob in got if blob.number > answer.sent[slot])


def test_a_switch_waits_for_records_of_the_partitions_that_were_packed_and_for_a_limited_time(made):
    packer, until = made(), {0: 1, 1: 2, 77: 9}
    packer.switch(Route(0, np.zeros(BINS, np.int32)))
    packer.await_until(until, 3_600_000)  # nothing of them was packed
    packer.pack([0, 1])  # (0, 0) and (1, 0): partition and offset
    awaiting = threading.Thread(target=packer.await_until, args=(until, 3_600_000))
    awaiting.start()
    packer.pack([6])  # (0, 1)
    assert awaiting.is_alive()
    packer.pack([7])  # (1, 1)
    awaiting.join(DEADLINE_S)
    assert not awaiting.is_alive()
    packer.await_until({0: 99}, 1)


def test_nothing_is_packed_behind_the_switch_of_the_last_epoch(made):
    packer, routing = made(), np.zeros(BINS, np.int32)
    packer.switch(Route(1, routing))
    assert packer.pack([0, 1])[0] == 2
    said = packer.switch(Route(2, routing, last=True))
    assert packer.pack([2, 4]) == (0, list(PLENTY), [])
    assert packer.switch(Route(2, routing, last=True)) == said
