"""The router in the JVM: it packs what the model packs, blob by blob, and joins the driver as the task of a query."""

import threading
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pipeline import await_true
from py4j.protocol import Py4JJavaError
from pyspark.sql.pandas.types import to_arrow_schema
from router import Router
from switchboards import DEADLINE_S, Running, heard

from impls.protocol.session import Failed, Hello, Route, Routed
from impls.realtime.blobs import Blob, decode
from impls.realtime.flow import Flow, Inbox
from impls.realtime.link import Lost, from_json
from impls.realtime.port import Receiver
from impls.spark.compiled import new_object
from impls.spark.realtime import runner
from impls.spark.realtime.settings import Wiring

pytestmark = pytest.mark.spark
FOLDER = Path(runner.__file__).parent
BINS, SLOTS, POOL = 8, 3, 40
LARGE = 30_000  # characters
LAST = 1 << 40  # a tick
PLENTY = [1 << 30] * SLOTS
EVERY_TYPE = (
    "int(if(id % 7 = 3, null, id % 8)) bin", "int(id % 2) partition", "id offset",
    "if(id % 3 = 0, null, id) time", "unhex(hex(id)) key", "id % 2 = 0 yes",
    "cast(id as tinyint) tiny", "cast(id as smallint) small", "cast(id / 3 as float) single", "id / 7 double",
    "cast(id / 3 as decimal(20, 4)) price", "if(id % 5 = 0, null, concat('é', id)) text",
    "date_from_unix_date(int(id)) day", "timestamp_micros(id * 1000003) at",
    "cast(timestamp_micros(id) as timestamp_ntz) there", "make_dt_interval(int(id)) lasts",
    "transform(sequence(0, id % 4), n -> nullif(n, 1)) list", "map('a', id, 'b', null) named",
    "if(id % 4 = 1, null, struct(nullif(id, 5) as a, nullif(string(id), '6') as b)) nested",
)  # fmt: skip


@dataclass
class Packer:
    """The JVM's packer, fed as the model is."""

    spark: Any
    df: Any
    slots: int = SLOTS
    source: int = 4
    rows: list[Any] = field(default_factory=list)

    def __post_init__(self):
        schema = self.df._jdf.schema().json()
        path = FOLDER / "Packer.java"
        self.packer = new_object(self.spark, path, self.source, self.slots, schema)
        self.arrow = to_arrow_schema(self.df.schema, timezone="UTC")
        self.rows = self.rows or list(self.df._jdf.queryExecution().executedPlan().executeCollect())

    def switch(self, route: Route) -> Routed:
        return from_json(self.packer.route(route.tick, self._array("int", route.routing.tolist())).encode())

    def pack(self, places: Sequence[int], room: Sequence[int] = PLENTY, times: tuple[int, int] = (-1, -1)) -> Any:
        """(records taken, room left, blobs) of the rows at these places."""
        records, out = self.spark._jvm.java.util.ArrayList(), self.spark._jvm.java.util.ArrayList()
        for place in places:
            records.add(self.rows[place])
        left = self._array("long", room)
        taken = self.packer.pack(records, 0, left, *times, out)
        return taken, list(left), [(entry.getKey(), bytes(entry.getValue())) for entry in out]

    def decoded(self, raw: bytes) -> Blob:
        return decode(raw, self.arrow)

    def _array(self, kind: str, values: Sequence[int]) -> Any:
        gateway = self.spark.sparkContext._gateway
        array = gateway.new_array(getattr(gateway.jvm, kind), len(values))
        for place, value in enumerate(values):
            array[place] = value
        return array


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
places = st.lists(st.integers(0, POOL - 1), max_size=30)
rooms = st.just(PLENTY) | st.lists(st.integers(-3, 9), min_size=SLOTS, max_size=SLOTS)
steps = st.lists(st.tuples(routings, places, rooms), min_size=1, max_size=4)


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
@given(given_steps=steps)
def test_it_packs_what_the_model_packs_blob_by_blob(pool, spark, given_steps):
    packer, model = Packer(spark, pool[0].df, rows=pool[0].rows), Router(4, SLOTS)
    for tick, (routing, chosen, room) in enumerate(given_steps):
        assert packer.switch(Route(tick, routing)) == model.switch(Route(tick, routing))
        records = pool[1].take(pa.array(chosen, pa.int64()))
        taken, left, blobs = packer.pack(chosen, room, (10 + tick, 20 + tick))
        assert (taken, left) == one_by_one(records["bin"].to_pylist(), routing, room)
        expected = model.pack([records.slice(0, taken)], came_us=10 + tick, packed_us=20 + tick)
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
            got[slot] += packer.decoded(raw).table["offset"].to_pylist()
    bins = {place: place % 8 for place in range(POOL) if place % 7 != 3}
    assert got == {slot: [place for place, bin_ in bins.items() if routing[bin_] == slot] for slot in range(SLOTS)}


def test_rows_without_a_bin_are_left_out(made):
    packer = made()
    packer.switch(Route(0, np.zeros(BINS, np.int32)))
    assert packer.pack([3, 10])[0::2] == (2, [])
    taken, _, [(slot, raw)] = packer.pack([3, 5, 10])
    assert (taken, slot, packer.decoded(raw).table["offset"].to_pylist()) == (3, 0, [5])
    assert packer.switch(Route(1, np.zeros(BINS, np.int32))).next == ((1, 6),)


def test_nothing_is_packed_before_a_routing_and_none_beyond_the_slots_is_taken(made):
    packer = made()
    with pytest.raises(Py4JJavaError, match="before the first routing"):
        packer.pack([1])
    with pytest.raises(Py4JJavaError, match="worker 3, but this query has 3 slots"):
        packer.switch(Route(0, np.full(BINS, 3, np.int32)))


def test_a_large_record_and_thousands_of_bins(spark):
    bins = 5_000
    df = spark.range(0, bins, 1, 1).selectExpr("int(id) bin", "0 partition", "id offset", f"repeat('x', {LARGE}) text")
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
    answers = [packer.switch(Route(tick, np.full(BINS, tick % 2, np.int32))) for tick in range(1, 60)]
    thread.join(DEADLINE_S)
    assert not thread.is_alive()
    got = [(slot, packer.decoded(raw)) for slot, raw in raws]
    assert len(got) == 300
    for answer in answers:
        assert all(blob.tick < answer.tick for slot, blob in got if blob.number <= answer.sent[slot])
        assert all(blob.tick >= answer.tick for slot, blob in got if blob.number > answer.sent[slot])


def flow_of(spark, path: Path, source: int) -> Any:
    return new_object(spark, FOLDER / "Flow.java", str(path), SLOTS, source)


def test_what_is_sent_takes_room_and_what_is_applied_gives_it_back(spark, made, tmp_path):
    longs, worker = partial(made()._array, "long"), Flow.create(tmp_path / "flow", SLOTS)
    flow, other = (flow_of(spark, tmp_path / "flow", source) for source in (0, 7))
    begin = list(flow.room())
    flow.sent(longs([10, 0, 5]))
    other.sent(longs([1, 2, 0]))
    assert list(flow.room()) == [begin[0] - 11, begin[1] - 2, begin[2] - 5]
    worker.applied(0, 11, 1000)
    assert list(other.room()) == [1000, begin[1] - 2, begin[2] - 5]


def test_routers_beyond_the_last_column_are_not_counted(spark, made, tmp_path):
    Flow.create(tmp_path / "flow", SLOTS)
    flow = flow_of(spark, tmp_path / "flow", 5_000)
    begin = list(flow.room())
    flow.sent(made()._array("long", [10, 0, 5]))
    assert list(flow.room()) == begin


def records(spark, number: int, *, sleep_ms: int = 0, bin_: str = "id % 2"):
    df = spark.range(0, number, 1, 1).selectExpr(f"int({bin_}) bin", "0 partition", "id offset")
    return df.where(f"reflect('java.lang.Thread', 'sleep', {sleep_ms}L) is not null") if sleep_ms else df


@dataclass
class Workers:
    """What the two workers of a query are sent."""

    wiring: Wiring
    inboxes: list[Inbox[Blob]] = field(default_factory=lambda: [Inbox(1 << 30), Inbox(1 << 30)])

    def __post_init__(self):
        self.receivers = [
            Receiver(self.wiring.worker_address(0, slot), self.wiring.key, self.wiring.schema, inbox)
            for slot, inbox in enumerate(self.inboxes)
        ]

    def close(self) -> None:
        for receiver in self.receivers:
            receiver.close()

    def got(self, sent: Sequence[Any]) -> list[tuple[int, int, list[int]]]:
        """(slot, tick, offsets) of the blobs; `sent` says how many there are, and they have come."""
        assert [(row.slot, row.router) for row in sent] == [(0, 0), (1, 0)]
        blobs = [self.inboxes[row.slot].take(0)[1] if row.blobs else [] for row in sent]
        assert [len(of_slot) for of_slot in blobs] == [row.blobs for row in sent]
        return [(slot, b.tick, b.table["offset"].to_pylist()) for slot, got in enumerate(blobs) for b in got]


@pytest.fixture
def begun(board):
    """Begins a query whose only router has said hello: (query, file of flow, workers)."""
    with ExitStack() as stack:

        def begin(df, **more):
            wiring = Wiring(board.address, board.key, "run", 2, to_arrow_schema(df.schema, timezone="UTC"))
            flow, workers = Flow.create(wiring.flow, 2), Workers(wiring)
            stack.callback(workers.close)

            def run() -> Any:
                sent = runner.routed(df, wiring, **more).collect()
                for row in sent:
                    workers.receivers[row.slot].await_blobs({row.router: row.blobs}, DEADLINE_S)
                return sent

            running = Running(run)
            hello = heard(board).message
            assert isinstance(hello, Hello)
            assert (hello.role, hello.index, hello.run, hello.batch, hello.pid) == ("router", 0, "run", 0, 0)
            return running, flow, workers

        yield begin


def test_it_waits_for_a_routing_and_switches_while_no_record_comes(spark, board, begun):
    running, _, workers = begun(records(spark, 8, sleep_ms=250))
    board.send("router", 0, Route(0, np.array([0, 1], np.int32)))
    assert heard(board).message == Routed(0, (0, 0))
    sent, tick = (0, 0), 0
    while sum(sent) < 3:  # a switch is answered in the 250 ms between two records
        tick += 1
        board.send("router", 0, Route(tick, np.array([0, 1], np.int32)))
        sent = heard(board).message.sent
    board.send("router", 0, Route(LAST, np.array([1, 1], np.int32)))
    marks = heard(board).message
    assert running.ended()
    assert running.error is None
    got = workers.got(running.result)
    assert sorted(at for _, _, offsets in got for at in offsets) == list(range(8))
    before = [(slot, offsets) for slot, tick, offsets in got if tick < LAST]
    assert marks.sent == tuple(sum(slot == wanted for slot, _ in before) for wanted in range(2))
    assert marks.next == ((0, 1 + max(at for _, offsets in before for at in offsets)),)
    assert {slot for slot, tick, _ in got if tick == LAST} == {1}
    assert isinstance(heard(board).message, Lost)


def test_records_that_follow_each_other_are_sent_when_the_first_has_lingered(spark, board, begun):
    running, _, workers = begun(records(spark, 200, sleep_ms=1, bin_="0"), idle_us=10_000_000, linger_us=20_000)
    board.send("router", 0, Route(0, np.array([0], np.int32)))
    assert running.ended()
    got = workers.got(running.result)
    assert len(got) >= 2
    assert [at for _, _, offsets in got for at in offsets] == list(range(200))


def test_a_routing_that_does_not_fit_ends_it_and_the_driver_hears_why(spark, board, begun):
    running, _, _ = begun(records(spark, 4))
    board.send("router", 0, Route(0, np.full(2, 2, np.int32)))
    said = "The routing names worker 2, but this query has 2 slots."
    assert heard(board).message == Failed("router", 0, "StateError", said)
    board.close()  # else Spark's next attempt would wait for a routing
    assert running.ended()
    assert running.error is not None


def test_an_error_of_the_source_is_that_of_the_query(spark, board, begun):
    broken = records(spark, 10).where("if(offset = 7, raise_error('broken row'), true)")
    running, _, _ = begun(broken)
    board.send("router", 0, Route(0, np.zeros(2, np.int32)))
    assert heard(board).message == Routed(0, (0, 0))
    failed = heard(board).message
    assert isinstance(failed, Failed)
    assert (failed.role, failed.index) == ("router", 0)
    assert "broken row" in failed.text
    board.close()
    assert running.ended()
    assert running.error is not None


@pytest.mark.parametrize("number", [4, 100_000])
def test_it_ends_with_the_driver_also_while_it_holds_records_back(spark, board, begun, number):
    running, _, _ = begun(records(spark, number, sleep_ms=500 if number == 4 else 0))
    board.send("router", 0, Route(0, np.zeros(2, np.int32)))
    assert heard(board).message == Routed(0, (0, 0))
    board.close()
    assert running.ended()
    assert f"The driver at {board.address} is gone" in str(running.error)  # so says Spark's last attempt


def test_it_holds_records_back_that_no_worker_has_room_for_and_routes_them_when_it_has(spark, board, begun):
    running, flow, workers = begun(records(spark, 300, bin_="0"))
    board.send("router", 0, Route(0, np.array([0], np.int32)))
    assert heard(board).message == Routed(0, (0, 0))
    await_true(lambda: flow._cells[0, 2] == 256, "as many records as the worker has room for")
    board.send("router", 0, Route(1, np.array([1], np.int32)))
    assert isinstance(heard(board).message, Routed)
    assert running.ended()
    assert [(slot, tick) for slot, tick, _ in workers.got(running.result)][-1] == (1, 1)
    assert (flow._cells[0, 2], flow._cells[1, 2]) == (256, 44)


def test_a_worker_that_has_applied_records_gets_more(spark, board, begun):
    running, flow, _ = begun(records(spark, 300, bin_="0"))
    board.send("router", 0, Route(0, np.array([0], np.int32)))
    await_true(lambda: flow._cells[0, 2] == 256, "as many records as the worker has room for")
    flow.applied(0, 256, 64)
    assert running.ended()
    assert flow._cells[0, 2] == 300


def test_a_task_that_is_cancelled_leaves_no_thread(spark, board, begun):
    def threads() -> int:
        names = [thread.getName() for thread in spark._jvm.java.lang.Thread.getAllStackTraces().keySet().toArray()]
        return sum(name.startswith("rescale-router") for name in names)

    running, _, _ = begun(records(spark, 1_000_000))
    board.send("router", 0, Route(0, np.zeros(2, np.int32)))
    assert heard(board).message == Routed(0, (0, 0))
    spark.sparkContext.cancelAllJobs()
    assert running.ended()
    assert "cancelled" in str(running.error)
    await_true(lambda: threads() == 0, "the router's threads to end")


def test_a_worker_that_is_gone_ends_the_router_and_the_driver_hears_which(spark, board, begun):
    running, _, workers = begun(records(spark, 100, sleep_ms=20, bin_="0"))
    board.send("router", 0, Route(0, np.array([1], np.int32)))
    assert heard(board).message == Routed(0, (0, 0))
    assert workers.inboxes[1].take(DEADLINE_S)[1]
    workers.close()
    assert "Worker 1 is gone" in heard(board).message.text
    board.close()
    assert running.ended()


def test_who_has_another_key_is_turned_away_on_both_sides(spark, board):
    with pytest.raises(Py4JJavaError, match="The driver has another key"):
        new_object(spark, FOLDER / "Link.java", "The driver", board.address, b"x" * 32)
    assert board.next(0.2) is None
    board.close()
    with pytest.raises(Py4JJavaError, match=f"The driver at {board.address} is gone"):
        new_object(spark, FOLDER / "Link.java", "The driver", board.address, board.key)
