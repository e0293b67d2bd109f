"""A worker of real-time mode: it commits what has come, and takes part in the epochs of the driver."""

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from impls.protocol.eventtime import NO_TIME, EventTime
from impls.protocol.order import EpochOrder
from impls.protocol.plan import Pull
from impls.protocol.session import Alive, Due, Ended, Final, Marks, NewEpoch, Watermark
from impls.realtime.blobs import Blob, Intake, table_of
from impls.realtime.breakdown import Breakdown
from impls.realtime.flow import AtMost, Pace
from impls.realtime.marks import Progress
from impls.worker.inputs import highest_times
from impls.worker.query import QuerySpec
from impls.worker.reports import Times, highest
from impls.worker.worker import Worker

_ALIVE_S = 1.0


class RealTimeWorker:
    """take() blobs and hear() the driver at any time, then step(); close() at the end. Used by one thread.

    Attributes:
        spare: step() would do nothing before something comes.
        waiting: blobs that were taken and are not applied.
        pace: how fast it is.
        worker: which commits.

    Args:
        spec: the query.
        worker: the worker's number.
        batch: Spark's number of the batch whose records come.
        say: says something to the driver.
    """

    def __init__(self, spec: QuerySpec, worker: int, *, batch: int, say: Callable[[Any], None]):
        self._spec, self._number, self._say = spec, worker, say
        self._progress = AtMost(lambda: say(Alive(worker)), _ALIVE_S)
        self.worker = Worker(spec, worker, batch=batch, progress=self._progress)
        self._intake, self.pace = Intake(worker), Pace()
        self._orders: deque[EpochOrder] = deque()
        self._messages: list[Marks | Final | Watermark] = []
        self._epoch = -1  # the one under way, or the last one
        self._marks = Progress(-1)
        self._breakdown = Breakdown()
        self._said_final = False
        self._due: int | None = None  # time of the earliest timer, when the last epoch ended
        self._furthest: dict[int, int] = {}  # highest event time by partition of the input
        self._told = False  # the driver knows that the input has come to it, or of a timer that was set since

    def hear(self, message: NewEpoch | Marks | Final | Watermark) -> None:
        """Takes what the driver says."""
        if not isinstance(message, NewEpoch):
            self._messages.append(message)
            return
        known = [order.written.epoch for order in self._orders]
        known += [self._epoch] if self.worker.in_epoch else []
        if message.order.written.epoch > max(known, default=-1):  # else it goes on with it
            self._orders.append(message.order)

    def take(self, blobs: Sequence[Blob]) -> None:
        """Takes blobs in the order in which they came; those of a later epoch wait for its order."""
        self._intake.put(blobs)

    @property
    def spare(self) -> bool:
        """Whether step() would do nothing before something comes."""
        return not (self._intake.has(self._epoch) or self._orders or self._messages)

    @property
    def waiting(self) -> int:
        """Blobs that were taken and are not applied, as those of an epoch whose order has not come."""
        return len(self._intake)

    def step(self) -> bool:
        """Commits what has come, or a part of it, and returns whether to call again at once.

        Raises StateError when the stored state does not fit, or cannot be read or written, OperatorError for a record.
        """
        if self._orders and not self.worker.in_epoch:
            self._begin(self._orders.popleft())
        if not self.worker.in_epoch:
            return self._between_epochs()
        for message in self._messages:
            self._marks.hear(message)
        self._messages.clear()
        self.worker.rise(self._marks.watermark())
        closing = self._closing()
        blobs = [] if self.worker.rises else self._intake.next(self._epoch, self.pace.window)
        pulls = self._pulls(blobs, closing=closing)
        if blobs or pulls or self.worker.has_work():
            self._commit(blobs, pulls)
        self.worker.pulls.pulled(pulls, closing=closing)
        return self._answer()

    def close(self) -> None:
        """Closes the environment."""
        self.worker.close()

    def _begin(self, order: EpochOrder) -> None:
        self.worker.begin(order)
        self._epoch, self._said_final = order.written.epoch, False
        self._marks = Progress(self._epoch)
        if self.worker.ended:  # an earlier task has ended it, and the driver has not taken that in
            self._say(Final(self._epoch, self._number))
            self._end()

    def _between_epochs(self) -> bool:
        """Goes on applying by the last order until the next one comes."""
        self._messages.clear()  # what is said of an epoch that has ended
        if blobs := self._intake.next(self._epoch, self.pace.window):
            self._commit(blobs, [])
        return not self.spare

    def _answer(self) -> bool:
        """Says what can be said now, and returns whether to go on at once."""
        reached, pulls = self._marks.reached(self._intake.applied), self.worker.pulls
        if not self._said_final and reached:
            self._said_final = True
            self._say(Final(self._epoch, self._number, tuple((part, at) for part, at in self.worker.state.times)))
        closing = self._closing()
        if self._pulls((), closing=closing):
            return True
        if closing:
            pulls.pulled([])
        if reached and pulls.complete and not self._marks.rises:
            self._end()
        return not self.spare

    def _closing(self) -> bool:
        """Returns whether all that is left to be pulled can be, and nothing more comes by the routing before."""
        final = self._marks.final
        is_final = final is None or self.worker.pulls.sources <= final
        return is_final and self._marks.reached(self._intake.applied)

    def _pulls(self, blobs: Sequence[Blob], *, closing: bool) -> list[Pull]:
        need = self.worker.need([blob.table for blob in blobs])
        return self.worker.pulls.due(need, self._marks.final, closing=closing)

    def _end(self) -> None:
        """Ends the epoch and answers."""
        if not self.worker.ended:
            self.worker.note_breakdown(self._breakdown.means())
            self._breakdown = Breakdown()
        answer = self.worker.end()
        self._say(Ended(self._epoch, self._number, answer.report.to_json(), answer.cells, answer.due))
        if answer.due != self._due or answer.due is None:  # one that it has told of may have run since
            self._due, self._told = answer.due, False
            self._look_for_timers()

    def _commit(self, blobs: Sequence[Blob], pulls: Sequence[Pull]) -> None:
        self._breakdown.begin(blobs)
        begin = time.perf_counter()
        table = table_of(blobs)
        times, ahead = self._times(blobs, table)
        ms = self.worker.commit(table, pulls, times=times, ahead=ahead)
        self._breakdown.done(ms)
        seconds = time.perf_counter() - begin - ms.get("pull", 0.0) / 1e3
        self.pace.took(sum(len(blob.table) for blob in blobs), seconds)
        self._intake.count(blobs)
        if self.worker.in_epoch:
            self._progress()
        self._look_for_timers()

    def _times(self, blobs: Sequence[Blob], table: pa.Table | None) -> tuple[Times, Times]:
        """Returns the event times of blobs: of those routed before the epoch that the commit belongs to, and others.

        `table` has the records of all of them, which mostly are of one kind: then one look at it is enough.
        """
        operator, epoch = self._spec.operator, self.worker.state.epoch
        if operator.event_time is None or table is None:
            return [], []
        parts = [(blob.epoch < epoch, blob.table) for blob in blobs]
        if len({early for early, _ in parts}) == 1:
            parts = [(parts[0][0], table)]
        before, now = (
            [pair for early, part in parts if early is wanted for pair in highest_times(part, operator)]
            for wanted in (True, False)
        )
        return before, now

    def _look_for_timers(self) -> None:
        """Tells the driver, once, when the input has come to the time of the earliest timer.

        Results of another query come in no order of their times, and milestones say how far they are. So behind one the
        driver is told, once, the time of a timer where it knows of none.
        """
        state, event_time = self.worker.state, self._spec.operator.event_time
        if event_time is None:
            return
        for partition, time_ in highest([*state.times, *state.ahead]):
            self._furthest[partition] = max(self._furthest.get(partition, NO_TIME), time_)
        if self._told:
            return
        at = self.worker.earliest_timer() if self._spec.linked and self._due is None else None
        if at is not None or self._has_come(event_time):
            self._told = True
            self._say(Due(self._number, at))

    def _has_come(self, event_time: EventTime) -> bool:
        """Returns whether the input is where the watermark may reach the earliest timer, as far as is known here."""
        if self._due is None or self._spec.linked or not self._furthest:
            return False
        until = (max if event_time.of_all else min)(self._furthest.values())
        return until >= self._due + event_time.disorder
