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
from impls.protocol.report import Report
from impls.protocol.session import Alive, Due, Ended, Final, Hello, Marks, NewEpoch, Watermark
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
        self.said, self._epoch, self._numbers, self._offset = [], -1, {}, 0
        self._spec = QuerySpec("q", 3, operator(), Unsent(), str(folder / "state"), files, repeats=True, linked=linked)
        self.worker = RealTimeWorker(self._spec, 0, batch=0, say=self.said.append)

    def begin(self, watermark=None, *, rises=False):
        """Begins one more epoch, and returns what the worker has said."""
        self._epoch += 1
        plan = EpochPlan(np.array([0, 0, 1], np.int32))
        written = replace(WrittenPlan(self._epoch, 1, 2, plan), watermark=watermark)
        self.worker.hear(NewEpoch(EpochOrder(written, first=self._epoch == 0)))
        return self.hear(Marks(self._epoch, tuple(self._numbers.items()), settled=True, rises=rises))

    def again(self):
        """Another session runs the epoch again; returns what the worker says in it."""
        self.worker.close()
        self.worker, self._numbers = RealTimeWorker(self._spec, 0, batch=0, say=self.said.append), {}
        self._epoch -= 1
        return self.begin(rises=True)

    def hear(self, message):
        """The worker hears a message; returns what it has said."""
        self.worker.hear(message)
        return self.step()

    def rise(self, watermark):
        """Tells the watermark of the epoch under way, and returns the worker's report."""
        ended = self.hear(Watermark(self._epoch, watermark))[0]
        return Report.from_json(ended.report)

    def epoch(self, watermark=None):
        """Runs one more epoch to its end, and returns the time of the earliest timer then."""
        final, ended, *more = self.begin(watermark)
        assert (type(final), type(ended), more) == (Final, Ended, [])
        assert ended.epoch == self._epoch
        return ended.due

    def records(self, partition, *times):
        """Applies records of bin 0, and returns what the worker has said."""
        number = self._numbers[partition] = self._numbers.get(partition, 0) + 1
        n, first = len(times), self._offset
        self._offset += n
        columns = {
            "bin": pa.array([0] * n, pa.int32()), "partition": pa.array([partition] * n, pa.int32()),
            "offset": pa.array(range(first, first + n), pa.int64()),
            "time": pa.array([0] * n, pa.int64()), "key": pa.array([b"k"] * n, pa.binary()),
            "at": pa.array(times, pa.int64()), PRODUCER: pa.array([-1] * n, pa.int64()),
            NUMBER: pa.array(range(first, first + n), pa.int64()),
        }  # fmt: skip
        self.worker.take([Blob(partition, number, self._epoch, pa.table(columns))])
        return self.step()

    def step(self):
        """Lets the worker do what it can, and returns what it has said."""
        while self.worker.step():
            pass
        said = [one for one in self.said if not isinstance(one, Alive)]  # which a slow machine has it say
        self.said.clear()
        return said


@pytest.fixture
def running(tmp_path):
    made = Running(tmp_path)
    yield made
    made.worker.close()


def test_the_driver_hears_once_that_all_partitions_have_come_to_the_earliest_timer(running):
    assert running.epoch() is None
    assert running.records(0, 10, 20) == []
    assert running.records(1, 10) == []
    assert running.epoch() == 110
    assert running.records(0, 110, 114) == []
    assert running.records(0, 115) == [], "the watermark is that of the other partition"
    assert running.records(1, 10, 130) == [Due(0)]
    assert running.records(0, 140) == []
    assert running.epoch() == 110, "an epoch without a watermark runs no timer"
    assert running.records(1, 150) == [], "the driver knows"
    final, ended, due = running.begin(115)
    assert (final.times, ended.due, due) == (((1, 150),), 120, Due(0)), "the input is behind the next one, too"


class Latest(Closing):
    """Its watermark is that of the partition that is ahead."""

    event_time = EventTime("at", disorder=DISORDER, of_all=True)


def test_where_the_watermark_follows_the_partition_that_is_ahead_one_is_enough(tmp_path):
    running = Running(tmp_path, Latest)
    with closing(running.worker):
        assert running.epoch() is None
        assert running.records(0, 10) == []
        assert running.records(1, 10) == []
        assert running.epoch() == 110
        assert running.records(0, 115) == [Due(0)]


def test_timers_run_within_the_epoch_once_the_watermark_is_told(running):
    assert running.epoch() is None
    assert running.records(0, 10, 20, 230) == []
    (final,) = running.begin(rises=True)
    assert final.times == ((0, 230),)
    assert running.records(0, 120) == [], "records of the epoch itself go on"
    report = running.rise(112)
    assert (report.event_time.fired, report.event_time.until, report.event_time.late) == (1, 112, 0)
    assert running.records(0, 111, 112) == []
    (final,) = running.begin(112, rises=True)
    report = running.rise(112)
    assert (report.event_time.late, report.event_time.until) == (1, None), "below the watermark, which is the plan's"


@pytest.mark.parametrize("ended", [False, True])
def test_a_worker_knows_up_to_where_its_timers_have_run_in_another_session(running, ended):
    assert running.epoch() is None
    assert running.records(0, 10, 20, 230) == []
    running.begin(rises=True)
    if ended:
        assert running.rise(112).event_time.until == 112
    else:
        running.worker.worker.rise(112)
        running.worker.worker.commit(None)
    said = running.again()
    assert [type(one) for one in said] == [Final, Ended] if ended else [Final]
    if not ended:
        assert running.rise(100).event_time.until == 112, "another session may tell less"
    assert running.records(0, 111) == []
    running.begin(112, rises=True)
    assert running.rise(None).event_time.late == 1


def test_no_timer_runs_where_the_watermark_does_not_reach_one(running):
    assert running.epoch() is None
    assert running.records(0, 10) == []
    assert len(running.begin(rises=True)) == 1
    report = running.rise(109)
    assert (report.event_time.fired, report.event_time.until) == (0, 109)
    assert report.commits == 1, "that of the record"
    assert len(running.begin(109, rises=True)) == 1
    assert running.rise(None).event_time.until is None


def test_a_timer_is_due_in_the_unit_of_the_event_time(tmp_path):
    running = Running(tmp_path, Coarse)
    with closing(running.worker):
        assert running.epoch() is None
        assert running.records(0, 10, 20) == []
        assert running.epoch() == 110
        assert running.records(0, 115) == [Due(0)]


def test_behind_another_query_the_driver_hears_once_of_a_timer_where_it_knows_of_none(tmp_path):
    running = Running(tmp_path, linked=True)
    with closing(running.worker):
        assert running.epoch() is None
        assert running.records(0, 10) == [Due(0, 110)]
        assert running.records(0, 20) == []
        assert running.epoch() == 110
        assert running.records(0, 300) == [], "the driver knows of the timer, and of milestones"
        assert running.epoch(400) is None, "all have run"
        assert running.epoch() is None
        assert running.records(0, 500) == [Due(0, 600)]
        running.begin(rises=True)
        assert running.rise(600).event_time.fired == 1, "neither epoch has ended with a timer"
        assert running.records(0, 700) == [Due(0, 800)]


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
    coordinator.receive(worker, Due(0, 60))
    assert coordinator.due == 60
    coordinator.begin(order(1))
    assert (coordinator.timers_wait, coordinator.due) == (False, None)
    coordinator.receive(worker, Due(0, 80))
    assert (coordinator.timers_wait, coordinator.due) == (False, 80)
