"""A worker tells when its earliest timer waits for an epoch alone: at an epoch's end, and when the input has come."""

from contextlib import closing
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from impls.durability.files import Files
from impls.durability.frame import FOLDER
from impls.operators import KeyedProcess
from impls.protocol.coordinator import Coordinator
from impls.protocol.eventtime import EventTime
from impls.protocol.order import EpochOrder
from impls.protocol.plan import EpochPlan, WrittenPlan
from impls.protocol.session import Due, Ended, Hello, Marks, NewEpoch
from impls.realtime.blobs import Blob
from impls.realtime.worker import RealTimeWorker
from impls.store.records import NUMBER, PRODUCER
from impls.worker.query import QuerySpec

DISORDER = 5


class Closing(KeyedProcess):
    """Sets a timer 100 behind each record."""

    columns = ("at",)
    event_time = EventTime("at", disorder=DISORDER)

    def record(self, record, context):
        context.set_timer(context.time + 100)

    def timer(self, context):
        pass


class Coarse(Closing):
    """Its timers are of another unit than its event time."""

    timer_unit = 10

    def record(self, record, context):
        context.set_timer(context.time // 10 + 10)


class Unsent:
    """Takes results and keeps none."""

    def send(self, results, **numbers):
        pass


class Running:
    """One worker with bins 0 and 1; bin 2 is at another."""

    def __init__(self, folder, operator=Closing, *, linked=False):
        files = Files(str(folder / "checkpoint"))
        files.make_folders([FOLDER])
        self.said, self._epoch, self._numbers = [], -1, {}
        spec = QuerySpec("q", 3, operator(), Unsent(), str(folder / "state"), files, repeats=True, linked=linked)
        self.worker = RealTimeWorker(spec, 0, batch=0, say=self.said.append)

    def epoch(self, watermark=None):
        """Runs one more epoch to its end, and returns the time of the earliest timer then."""
        self._epoch += 1
        plan = EpochPlan(np.array([0, 0, 1], np.int32))
        written = replace(WrittenPlan(self._epoch, 1, 2, plan), watermark=watermark)
        self.worker.hear(NewEpoch(EpochOrder(written, first=self._epoch == 0)))
        self.worker.hear(Marks(self._epoch, tuple(self._numbers.items()), settled=True))
        self.step()
        ended = self.said.pop()
        assert isinstance(ended, Ended)
        assert ended.epoch == self._epoch
        self.said.clear()
        return ended.due

    def records(self, partition, *times):
        """Applies records of bin 0, and returns what the worker has said."""
        number = self._numbers[partition] = self._numbers.get(partition, 0) + 1
        n = len(times)
        columns = {
            "bin": pa.array([0] * n, pa.int32()), "partition": pa.array([partition] * n, pa.int32()),
            "offset": pa.array(range(number * 100, number * 100 + n), pa.int64()),
            "time": pa.array([0] * n, pa.int64()), "key": pa.array([b"k"] * n, pa.binary()),
            "at": pa.array(times, pa.int64()), PRODUCER: pa.array([-1] * n, pa.int64()),
            NUMBER: pa.array(range(number * 100, number * 100 + n), pa.int64()),
        }  # fmt: skip
        self.worker.take([Blob(partition, number, self._epoch, pa.table(columns))])
        self.step()
        said = list(self.said)
        self.said.clear()
        return said

    def step(self):
        while self.worker.step():
            pass


@pytest.fixture
def running(tmp_path):
    made = Running(tmp_path)
    yield made
    made.worker.close()


def test_the_driver_hears_once_of_each_partition_that_it_has_come_to_the_earliest_timer(running):
    assert running.epoch() is None
    assert running.records(0, 10, 20) == []
    assert running.epoch() == 110
    assert running.records(0, 110, 114) == []
    assert running.records(0, 115) == [Due(0)]
    assert running.records(0, 120) == []
    assert running.records(1, 10, 130) == [Due(0)]
    assert running.epoch() == 110, "an epoch without a watermark runs no timer"
    assert running.records(0, 140) == []
    assert running.records(1, 150) == []
    assert running.epoch(115) == 120
    assert running.records(0, 160) == [], "it was behind 120 before that was the next"


def test_a_timer_is_due_in_the_unit_of_the_event_time(tmp_path):
    running = Running(tmp_path, Coarse)
    with closing(running.worker):
        assert running.epoch() is None
        assert running.records(0, 10, 20) == []
        assert running.epoch() == 110
        assert running.records(0, 115) == [Due(0)]


def test_behind_another_query_the_driver_hears_once_of_records_where_no_timer_was_set(tmp_path):
    running = Running(tmp_path, linked=True)
    with closing(running.worker):
        assert running.epoch() is None
        assert running.records(0, 10) == [Due(0)]
        assert running.records(0, 20) == []
        assert running.epoch() == 110
        assert running.records(0, 30) == [], "the driver knows of the timer, and of milestones"
        assert running.epoch(400) is None, "all have run"
        assert running.epoch() is None
        assert running.records(0, 300) == [Due(0)]


def test_a_coordinator_keeps_what_is_due_until_the_next_epoch():
    coordinator = Coordinator()
    worker = Hello("worker", 0, 1, "a", 0, 7)
    for hello in (worker, Hello("router", 0, 1, "a", 0, 0)):
        coordinator.joined(hello)

    def order(epoch):
        return EpochOrder(WrittenPlan(epoch, 1, 1, EpochPlan(np.zeros(1, np.int32))))

    coordinator.begin(order(0))
    assert (coordinator.timers_wait, coordinator.due) == (False, None)
    coordinator.receive(replace(worker, run="b"), Due(0))
    assert not coordinator.timers_wait, "it is of another session"
    coordinator.receive(worker, Ended(0, 0, b"{}", b"", 70))
    coordinator.receive(worker, Due(0))
    assert (coordinator.timers_wait, coordinator.due) == (True, 70)
    coordinator.begin(order(1))
    assert (coordinator.timers_wait, coordinator.due) == (False, None)
