"""The driver's side of a session of real-time mode: who is told what, and when an epoch is done. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from impls.errors import StateError
from impls.protocol.order import EpochOrder
from impls.protocol.session import (
    Alive,
    Closed,
    Due,
    Ended,
    Failed,
    Final,
    Hello,
    Marks,
    NewEpoch,
    Role,
    Route,
    Routed,
    Said,
    Say,
    Watermark,
)

Rise = Callable[[Sequence[tuple[int, int]], Mapping[int, int]], int | None]
"""Takes event times, as in `Final`, and by partition of the input the offset behind the last record that all have
applied; returns the watermark."""
Awaited = Callable[[int | None], Mapping[int, int]]
"""Takes the time of the earliest timer; returns up to which offset it waits for records, by partition of the input."""


class Coordinator:
    """begin() an epoch; joined(), left() and receive() as tasks come, go and speak; each returns what to say.

    A new session, be it the next batch or a query that was started again, replaces the one before; the epoch under way
    goes on with it.

    Attributes:
        hello: the tasks of the session there are, by role and index.
        unclosed: workers whose processes may write or send, also those that are not connected any more.
        ended: what workers of the plan have ended the epoch with.
        failed: the error with which a task of this session has ended, None while there is none.
        needed: by partition of the input, the first offset of which a batch that comes again has to bring the record.
        timers_wait: a worker has said since the epoch began that the input has come to its earliest timer.
        rise: lets the watermark rise within an epoch, None for an operator without event time.
        awaited: says for which records routers wait before they switch in an epoch that keeps the routing.
        last: the query ends with the next epoch, behind which routers send nothing.
    """

    def __init__(self) -> None:
        self.rise: Rise | None = None
        self.last = False
        self.awaited: Awaited = lambda _: {}
        self.hello: dict[tuple[Role, int], Hello] = {}
        self.unclosed: list[Hello] = []
        self._known: set[tuple[Role, int]] = set()  # tasks that have joined this session, also those that have left it
        self.ended: dict[int, Ended] = {}
        self.failed: Failed | None = None
        self.needed: dict[int, int] = {}
        self.timers_wait = False
        self._order: EpochOrder | None = None
        self._session = ("", -1)
        self._ended_runs: set[str] = set()
        self._begun = False  # this session knows the epoch
        self._awaited: Mapping[int, int] = {}  # when the epoch began
        self._settled = False  # the session's workers have ended an epoch of the same routing
        self._route: Route | None = None  # what the routers of this session have been told last
        self._switched: dict[int, Routed] = {}
        self._finals: dict[int, Final] = {}  # of this session, in the epoch
        self._set: list[int] = []  # times of timers that records have set since the epoch began, as far as was said

    @property
    def done(self) -> bool:
        """Whether every worker of the plan has ended the epoch."""
        return self._order is not None and len(self.ended) == self._order.written.workers

    @property
    def due(self) -> int | None:
        """Time of the earliest timer when the epoch ended, or set since and told of; None where there is none."""
        return min([*(ended.due for ended in self.ended.values() if ended.due is not None), *self._set], default=None)

    @property
    def complete(self) -> bool:
        """Whether all tasks of the session are there."""
        wanted: dict[Role, int] = {hello.role: hello.of for hello in self.hello.values()}
        return len(wanted) == 2 and len(self.hello) == sum(wanted.values())

    @property
    def slots(self) -> int:
        """Number of workers that the session can have, 0 before one has joined."""
        return next((hello.of for hello in self.hello.values() if hello.role == "worker"), 0)

    @property
    def pids(self) -> list[int]:
        """Processes of the session's workers that are connected."""
        return sorted({hello.pid for hello in self.hello.values() if hello.role == "worker"})

    def begin(self, order: EpochOrder) -> list[Say]:
        """Begins an epoch; one that has begun goes on, also in a session that has joined since and knows it already."""
        if self._order is None or order.written.epoch != self._order.written.epoch:
            self._awaited = self.awaited(self.due)
            self.ended, self._begun, self.timers_wait, self._set = {}, False, False, []
        self._order = order
        return self._tell()

    def end(self) -> None:
        """Forgets the session, as the query and its processes are ended; no task of that start is heard any more."""
        self._ended_runs.add(self._session[0])
        self.unclosed = []
        self._replace(("", -1))

    def joined(self, hello: Hello) -> list[Say]:
        """Takes in a task; one of another session than before begins that.

        One that Spark has started again in its session fails that: nobody sends it again what it had taken before.
        """
        run, batch = self._session
        if hello.role == "worker":
            self.unclosed.append(hello)
        if hello.run in self._ended_runs or (hello.run == run and hello.batch < batch):
            return []  # it comes late, its session is over
        if (hello.run, hello.batch) != self._session:
            if run != hello.run:
                self._ended_runs.add(run)
            self._replace((hello.run, hello.batch))
        if (hello.role, hello.index) in self._known:
            self.failed = self.failed or Failed(hello.role, hello.index, "StateError", "Spark has started it again")
            return []
        self._known.add((hello.role, hello.index))
        self.hello[hello.role, hello.index] = hello
        return self._tell()

    def _replace(self, session: tuple[str, int]) -> None:
        """Begins another session; workers that have ended the epoch answer again, see `impls.worker.reports`."""
        self._session = session
        if not self.done:
            self.ended = {}
        self.hello, self._known, self._route, self._begun, self.failed = {}, set(), None, False, None

    def left(self, peer: Hello) -> None:
        """Takes in that a task's connection ended."""
        if self.hello.get((peer.role, peer.index)) == peer:
            del self.hello[peer.role, peer.index]

    def receive(self, peer: Hello, said: Said) -> list[Say]:
        """Takes in what a task says; words of another session are passed over."""
        role, index = peer.role, peer.index
        if isinstance(said, Closed):  # also one of another session
            self.unclosed = [hello for hello in self.unclosed if hello != peer]
        if (peer.run, peer.batch) != self._session:
            return []
        if isinstance(said, Failed | Due | Alive | Closed):
            self._note(said)
            return []
        if self._order is None or said.epoch != self._order.written.epoch or not self._begun:
            return []
        if isinstance(said, Routed):
            self._switched[index] = said
            return self._marks()
        if isinstance(said, Final):
            self._finals[index] = said
            return [*(Say("worker", worker, said) for worker in self._workers()), *self._risen()]
        if said.worker != index:
            raise StateError(f"The {role} {index} ends the epoch {said.epoch} for worker {said.worker}.")
        self.ended[said.worker] = said
        if self.done:
            for routed in self._switched.values():
                self.needed.update(routed.next)
        return []

    def _note(self, said: Failed | Due | Alive | Closed) -> None:
        """Takes in what a task says of no epoch."""
        if isinstance(said, Failed):
            self.failed = self.failed or said
        if isinstance(said, Due):
            self.timers_wait = self.timers_wait or said.at is None
            self._set += [] if said.at is None else [said.at]

    def _workers(self) -> range:
        assert self._order is not None, "an epoch has begun"
        return range(self._order.written.workers)

    def _tell(self) -> list[Say]:
        """Tells a complete session the epoch that has begun."""
        order = self._order
        if order is None or self._begun or not self.complete or order.written.workers > self.slots or self.done:
            return []
        self._begun, self._switched, self._finals = True, {}, {}
        said = [Say("worker", worker, NewEpoch(order)) for worker in self._workers()]
        routing = order.written.plan.routing  # standbys are kept up from the changelog
        self._settled = self._route is not None and np.array_equal(self._route.routing, routing)
        until = tuple(self._awaited.items()) if self._settled else ()
        self._route = route = Route(order.written.epoch, routing, until, self.last)
        return [*said, *(Say("router", index, route) for index in self._routers())]

    def _routers(self) -> Iterable[int]:
        return sorted(index for role, index in self.hello if role == "router")

    def _marks(self) -> list[Say]:
        """Tells every worker what to wait for, once all routers have switched."""
        assert self._order is not None, "an epoch has begun"
        if set(self._switched) != set(self._routers()) or not self.complete:
            return []
        epoch = self._order.written.epoch
        counts = {
            worker: tuple((index, routed.sent[worker]) for index, routed in sorted(self._switched.items()))
            for worker in self._workers()
        }
        rises = self.rise is not None
        return [Say("worker", worker, Marks(epoch, count, self._settled, rises)) for worker, count in counts.items()]

    def _risen(self) -> list[Say]:
        """Tells every worker the watermark, once all of them are final."""
        assert self._order is not None, "an epoch has begun"
        if self.rise is None or not self._finals.keys() >= set(self._workers()):
            return []
        times = [pair for final in self._finals.values() for pair in final.times]
        read = dict(self.needed)
        for partition, behind in (pair for routed in self._switched.values() for pair in routed.next):
            read[partition] = max(behind, read.get(partition, behind))
        message = Watermark(self._order.written.epoch, self.rise(times, read))
        return [Say("worker", worker, message) for worker in self._workers()]
