"""The executor of real-time mode: it hands an epoch to long-lived tasks and returns when every worker has ended it."""

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from impls.errors import StateError
from impls.protocol.coordinator import Awaited, Coordinator, Rise
from impls.protocol.order import Answers, EpochOrder
from impls.protocol.report import Report
from impls.protocol.seats import NO_SERVERS
from impls.protocol.session import Closed, Due, Hello, Say
from impls.realtime.link import Event, Lost, Switchboard
from impls.worker.cells import CELL

_POLL_S = 0.05
_DEADLINE_S = 120.0


class SessionLost(Exception):  # noqa: N818 - a signal to the runner, which starts the query again
    """The tasks of the session have failed or are gone; the epoch under way is to be run again with new ones."""


class SlotsNeeded(Exception):  # noqa: N818 - a signal to the runner
    """The plan has more workers than the query has slots: it is to be started again with as many.

    Attributes:
        workers: number of workers of the plan.
    """

    def __init__(self, workers: int):
        super().__init__(f"{workers} workers need as many slots")
        self.workers = workers


class RealTimeExecutor:
    """Runs epochs on the tasks that are connected to a switchboard; used by one thread.

    Attributes:
        servers: none, as real-time mode runs on one host.
        check: called again and again while an epoch runs; raises SessionLost when the query has ended.
    """

    servers: Mapping[str, str] = NO_SERVERS

    def __init__(self, switchboard: Switchboard, check: Callable[[], None] = lambda: None):
        self._switchboard, self.check = switchboard, check
        self._coordinator, self._until = Coordinator(), 0.0

    def rise_by(self, rise: Rise, awaited: Awaited) -> None:
        """Lets the watermark rise within epochs, see `impls.protocol.coordinator.Coordinator`."""
        self._coordinator.rise, self._coordinator.awaited = rise, awaited

    def begin_last(self) -> bool:
        """Lets the next epoch be the last, behind which routers send nothing; returns whether it is still to be run.

        All that was sent is then applied, and whoever reads the checkpoint knows up to which offsets.
        """
        before, self._coordinator.last = self._coordinator.last, True
        return not before

    @property
    def pids(self) -> list[int]:
        """Processes of the session's workers that are connected."""
        return self._coordinator.pids

    @property
    def unclosed(self) -> list[Hello]:
        """Workers whose processes may write or send, see `impls.protocol.coordinator.Coordinator`."""
        return self._coordinator.unclosed

    @property
    def needed(self) -> dict[int, int]:
        """By partition of the input, the first offset needed again, see `impls.protocol.coordinator.Coordinator`."""
        return self._coordinator.needed

    @property
    def due(self) -> int | None:
        """Time of the earliest timer when the last epoch ended."""
        return self._coordinator.due

    @property
    def timers_wait(self) -> bool:
        """Whether a worker has seen what lets a timer run, see `impls.protocol.session.Due`."""
        return self._coordinator.timers_wait

    @property
    def complete(self) -> bool:
        """Whether all tasks of the session are connected."""
        return self._coordinator.complete

    def check_tasks(self) -> None:
        """Raises SessionLost when a task of the session has failed."""
        if (failed := self._coordinator.failed) is not None:
            raise SessionLost(f"{failed.role} {failed.index}: {failed.kind}: {failed.text}")

    def end_session(self) -> None:
        """Forgets the session, as the query is ended; a task of it that comes late is not taken for the next one's."""
        self._coordinator.end()

    def run(self, order: EpochOrder, batch: Any) -> Answers:
        """Runs an epoch, also one that was begun with another session.

        Raises:
            SessionLost: a task has failed, or the query has ended.
            SlotsNeeded: the plan has more workers than the query has slots.
            StateError: no task has joined, answered or said that it goes on with its work for two minutes.
        """
        begin, self._until = time.perf_counter(), time.monotonic() + _DEADLINE_S
        self._say(self._coordinator.begin(order))
        while not self._coordinator.done:
            self.take(_POLL_S)
            self._look_after(order)
        ended = self._coordinator.ended.values()
        rows = [(Report.from_json(e.report), np.frombuffer(e.cells, CELL)) for e in ended]
        return Answers.of(rows, build_ms=0.0, job_ms=(time.perf_counter() - begin) * 1e3)

    def take(self, timeout_s: float) -> bool:
        """Takes in one event if one comes in time, and returns whether one came."""
        event = self._switchboard.next(timeout_s)
        if event is not None:
            self._say(self._answer(event))
        return event is not None

    def _answer(self, event: Event) -> list[Say]:
        peer, message = event.peer, event.message
        if not isinstance(message, Lost | Due | Closed):
            self._until = time.monotonic() + _DEADLINE_S
        if isinstance(message, Hello):
            return self._coordinator.joined(message)
        if isinstance(message, Lost):
            self._coordinator.left(peer)
            return []
        return self._coordinator.receive(peer, message)

    def _look_after(self, order: EpochOrder) -> None:
        slots = self._coordinator.slots
        self.check_tasks()
        self.check()
        if slots and order.written.workers > slots:
            raise SlotsNeeded(order.written.workers)
        if time.monotonic() > self._until:
            late = sorted(set(range(order.written.workers)) - set(self._coordinator.ended))
            where = "is not complete" if not self._coordinator.complete else f"has no answer of workers {late}"
            silent = f"Nobody has gone on with epoch {order.written.epoch} for {_DEADLINE_S:.0f} s"
            raise StateError(f"{silent}: its session {where}; see the logs of Spark's executors.")

    def _say(self, said: list[Say]) -> None:
        for say in said:
            self._switchboard.send(say.role, say.index, say.message)
