"""The router in the JVM joins the driver as the task of a query, and sends workers their blobs."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from packing import FOLDER, SLOTS, array_of
from pipeline import await_true
from py4j.protocol import Py4JJavaError
from pyspark.sql.pandas.types import to_arrow_schema
from switchboards import DEADLINE_S, Running, heard

from impls.protocol.session import Failed, Hello, Route, Routed
from impls.realtime.blobs import Blob
from impls.realtime.flow import Flow, Inbox
from impls.realtime.link import Lost
from impls.realtime.port import Receiver
from impls.realtime.wire import CONSTANTS
from impls.spark.compiled import new_object
from impls.spark.realtime import runner
from impls.spark.realtime.settings import Wiring

pytestmark = pytest.mark.spark
LAST = 1 << 40  # an epoch


def flow_of(spark, path: Path, source: int) -> Any:
    return new_object(spark, FOLDER / "Flow.java", str(path), SLOTS, source, constants=CONSTANTS)


def test_what_is_sent_takes_room_and_what_is_applied_gives_it_back(spark, tmp_path):
    longs, worker = partial(array_of, spark, "long"), Flow.create(tmp_path / "flow", SLOTS)
    flow, other = (flow_of(spark, tmp_path / "flow", source) for source in (0, 7))
    begin = list(flow.room())
    flow.sent(longs([10, 0, 5]))
    other.sent(longs([1, 2, 0]))
    assert list(flow.room()) == [begin[0] - 11, begin[1] - 2, begin[2] - 5]
    worker.applied(0, 11, 1000)
    assert list(other.room()) == [1000, begin[1] - 2, begin[2] - 5]


def test_routers_beyond_the_last_column_are_not_counted(spark, tmp_path):
    Flow.create(tmp_path / "flow", SLOTS)
    flow = flow_of(spark, tmp_path / "flow", 5_000)
    begin = list(flow.room())
    flow.sent(array_of(spark, "long", [10, 0, 5]))
    assert list(flow.room()) == begin


def records(spark, number: int, *, sleep_ms: int = 0, bin_: str = "id % 2"):
    df = spark.range(0, number, 1, 1).selectExpr(f"int({bin_}) bin", "0L partition", "id offset")
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
        """(slot, epoch, offsets) of the blobs; `sent` says how many there are, and they have come."""
        assert [(row.slot, row.router) for row in sent] == [(0, 0), (1, 0)]
        blobs = [self.inboxes[row.slot].take(0)[1] if row.blobs else [] for row in sent]
        assert [len(of_slot) for of_slot in blobs] == [row.blobs for row in sent]
        return [(slot, b.epoch, b.table["offset"].to_pylist()) for slot, got in enumerate(blobs) for b in got]


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
    sent, epoch = (0, 0), 0
    while sum(sent) < 3:  # a switch is answered in the 250 ms between two records
        epoch += 1
        board.send("router", 0, Route(epoch, np.array([0, 1], np.int32)))
        sent = heard(board).message.sent
    board.send("router", 0, Route(LAST, np.array([1, 1], np.int32)))
    marks = heard(board).message
    assert running.ended()
    assert running.error is None
    got = workers.got(running.result)
    assert sorted(at for _, _, offsets in got for at in offsets) == list(range(8))
    before = [(slot, offsets) for slot, epoch, offsets in got if epoch < LAST]
    assert marks.sent == tuple(sum(slot == wanted for slot, _ in before) for wanted in range(2))
    assert marks.next == ((0, 1 + max(at for _, offsets in before for at in offsets)),)
    assert {slot for slot, epoch, _ in got if epoch == LAST} == {1}
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
    assert [(slot, epoch) for slot, epoch, _ in workers.got(running.result)][-1] == (1, 1)
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
        new_object(spark, FOLDER / "Link.java", "The driver", board.address, b"x" * 32, constants=CONSTANTS)
    assert board.next(0.2) is None
    board.close()
    with pytest.raises(Py4JJavaError, match=f"The driver at {board.address} is gone"):
        new_object(spark, FOLDER / "Link.java", "The driver", board.address, board.key, constants=CONSTANTS)
