"""How long the driver waits for an epoch: as long as it goes on, and no longer than its deadline in silence."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from clocks import set_clock

from impls.durability.files import Files
from impls.errors import StateError
from impls.operators import HashCount
from impls.protocol.order import EpochOrder
from impls.protocol.plan import EpochPlan, WrittenPlan
from impls.protocol.report import Report
from impls.protocol.session import Alive, Due, Ended, Hello, Marks, NewEpoch
from impls.realtime.executor import RealTimeExecutor
from impls.realtime.link import Event
from impls.realtime.worker import RealTimeWorker
from impls.worker.query import QuerySpec
from impls.worker.sinks import Nowhere

BINS = 8
ORDER = EpochOrder(WrittenPlan(0, 1, 1, EpochPlan(np.zeros(BINS, np.int32))), first=True)
TASKS = [Hello("router", 0, 1, "run", 0, 0), Hello("worker", 0, 1, "run", 0, 1)]
ENDED = Ended(0, 0, Report(0).to_json(), b"")


class Board:
    """A switchboard from which a message comes every so many seconds; then there is silence."""

    def __init__(self, clock, every_s, messages):
        self._clock, self._every_s = clock, every_s
        self._events = [*(Event(hello, hello) for hello in TASKS), *(Event(TASKS[1], one) for one in messages)]

    def next(self, timeout_s):
        self._clock.now += self._every_s
        return self._events.pop(0) if self._events else None

    def send(self, role, index, message):
        return True


@pytest.fixture
def clock(monkeypatch):
    return set_clock(monkeypatch, "impls.realtime.executor")


def test_an_epoch_that_takes_an_hour_is_waited_for_while_its_worker_goes_on(clock):
    executor = RealTimeExecutor(Board(clock, 100.0, [Alive(0)] * 36 + [ENDED]))
    assert [report.worker for report in executor.run(ORDER, None).reports] == [0]


@pytest.mark.parametrize("messages", [[], [Alive(0)] * 5, [Due(0)] * 100], ids=["none", "some", "of timers alone"])
def test_silence_ends_an_epoch(clock, messages):
    begin = clock.now
    with pytest.raises(StateError, match=r"Nobody has gone on with epoch 0 for 120 s: .* no answer of workers \[0\]"):
        RealTimeExecutor(Board(clock, 10.0, messages)).run(ORDER, None)
    assert clock.now - begin <= 10.0 * (5 + len(TASKS)) + 130.0


@dataclass(frozen=True)
class Slow(HashCount):
    """Takes a minute of a clock to create a bin."""

    clock: Any = None

    def create(self, bin_, bins, state):
        self.clock.now += 60.0
        super().create(bin_, bins, state)


def test_a_worker_says_that_it_goes_on_while_it_creates_and_rebuilds_bins(tmp_path, monkeypatch):
    clock = set_clock(monkeypatch, "impls.realtime.flow")
    files = Files(str(tmp_path / "checkpoint"))
    files.make_folders(["log", "snapshots"])
    spec = QuerySpec("q", BINS, Slow(clock=clock), Nowhere(), str(tmp_path / "state"), files, repeats=True)
    for number, lost in ((0, False), (1, True)):
        said = []
        worker = RealTimeWorker(spec, 0, batch=0, say=said.append)
        if lost:
            (tmp_path / "state" / "worker-0000" / "data.mdb").unlink()
        worker.hear(NewEpoch(EpochOrder(WrittenPlan(number, 1, 1, ORDER.written.plan), first=number == 0)))
        worker.hear(Marks(number, (), settled=True))
        while worker.step():
            pass
        worker.close()
        assert said[:BINS] == [Alive(0)] * BINS
        assert [one.epoch for one in said if isinstance(one, Ended)] == [number]
