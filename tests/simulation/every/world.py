"""A small real-time query whose next event is a choice: driver, coordinator, routers and workers are real."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from chaos.violation import Violation, require
from realtime.query import Query
from realtime.session import Peer, Session

from every.choices import Choices
from every.failure import Failure
from every.small import GOAL, Small, SmallLoad
from every.states import States
from impls.errors import StateError
from impls.protocol.order import Answers, EpochOrder
from impls.protocol.report import Report
from impls.protocol.session import Ended
from impls.realtime.executor import SessionLost
from impls.worker.cells import CELL

_STEPS_MAX = 2_000
Act = tuple[str, Callable[[], None]]


class _First(Random):
    """What the simulation draws beside the order of events is always the same."""

    def random(self) -> float:
        return 0.0


class World(Query):
    """epoch() as in the simulation, but each event is picked.

    Attributes:
        trace: the names of the events so far.
        free: every order is tried; else the first event happens each time.
        check: called behind each event.
        states: digests of the states.
    """

    def __init__(self, small: Small, choices: Choices, folder: Path):
        self._small, self._choices = small, choices
        self.check: Callable[[], None] = lambda: None
        self.failure, self.free = Failure(choices, small.failures), True
        self.trace: list[str] = []
        super().__init__(small.parameters(), SmallLoad(small), self.failure, folder)  # type: ignore[arg-type]
        self._random = _First(0)
        self._durable = False
        self._reading: set[int] = set()  # routers that may read before they switch again
        self.states = States(self, folder)

    def command_goal(self) -> None:
        """The user's command."""
        self.driver.command("rebalance", GOAL, "swapped")

    def epoch(self) -> None:
        """Runs the next epoch; it begins at once, as the tasks may hear of it as late as they like."""
        target = self.driver.last_epoch + 1
        while self.driver.last_epoch < target:
            try:
                self.driver.run_epoch(None, target)
            except SessionLost:
                self._end_session()
            except StateError as error:
                raise Violation("driver", f"{type(error).__name__}: {error}") from error
        self._durable = True

    def run(self, order: EpochOrder, batch: Any) -> Answers:
        """Runs an epoch as `RealTimeExecutor` does."""
        self._workers = order.written.workers
        self._say(self._coordinator.begin(order))
        while not self._coordinator.done:
            self._act(order.written.epoch)
        rows = [(Report.from_json(e.report), np.frombuffer(e.cells, CELL)) for e in self._coordinator.ended.values()]
        return Answers.of(rows, build_ms=0.0, job_ms=1.0)

    # -- one event ----------------------------------------------------------------------------------------------------

    def _act(self, epoch: int | None) -> None:
        self.steps += 1
        require(self.steps < _STEPS_MAX, "stuck", f"epoch {epoch} has no end")
        if self.session is None:
            self.session, self._durable = self._begin_session(), True
            self._reading = set[int]()
            self.states.touch_all()
        if self._happens_at_once(self.session):
            return
        acts = list(self._possible(self.session))
        dies = (self._durable and self.failure.possible) or self.session.dying is not None
        require(bool(acts) or dies, "stuck", f"nobody can do anything for epoch {epoch}")
        costs = [0, *[1] * (len(acts) - 1)][: len(acts)] + [0] * dies
        chosen = self._pick(costs)
        self._durable = False
        name, act = [*acts, ("all tasks die", self._die)][chosen]
        self.trace.append(name)
        act()
        self.check()

    def _pick(self, costs: list[int]) -> int:
        if len(costs) == 1 or not self.free:
            return 0
        if not self._choices.replaying:
            self._choices.state(self.states.digest())
        return self._choices.pick(costs)

    def _happens_at_once(self, session: Session) -> bool:
        """Lets happen what commutes with all else that can happen: words to the driver, and what routers do.

        A word may be sent at once as it may be taken late, a blob likewise; the number of a router's blobs between two
        of its switches is a choice. The word that ends an epoch does not commute with the death of the tasks.
        """
        for (role, index), peer in session.peers.items():
            if peer.outbox and not self._ends(peer):
                self.trace.append(f"the driver takes {_name(peer.outbox[0])} of {role} {index}")
                self._tell(peer)
                return True
            if role == "router" and index in self._reading:
                self._read(session, index)
                return True
            if role == "router" and peer.inbox and peer.alive:
                self.trace.append(f"router {index} switches")
                session.hear(("router", index))
                self._reading.add(index)
                return True
        return False

    def _ends(self, peer: Peer) -> bool:
        """Whether a task's next word ends the epoch."""
        last = len(self._coordinator.ended) + 1 == self._workers
        return isinstance(peer.outbox[0], Ended) and last and self.failure.left + (self.session.dying is not None) > 0

    def _read(self, session: Session, f: int) -> None:
        """A router reads, or waits for the next switch."""
        left = len(self.load.log[f]) - session.positions[f]
        waits = self._choices.pick((0, 1)) if left and self.free else self._begun_reading(session, f)
        if not left or waits:
            self._reading.discard(f)
            return
        self.trace.append(f"router {f} reads")
        session.send(f, session.read(f, self._small.read - 1))
        self.states.touch(("router", f))

    def _begun_reading(self, session: Session, f: int) -> bool:
        """Whether a router waits in the epoch before the migration: what it has read is on its way then."""
        return self.driver.last_epoch < 0 and session.positions[f] > 0

    def _possible(self, session: Session) -> Iterator[Act]:
        """Yields what can happen; where nothing is picked the first of it does."""
        for (role, index), peer in session.peers.items():
            if peer.outbox:
                name = f"the driver takes {_name(peer.outbox[0])} of {role} {index}"
                yield name, lambda p=peer: self._tell(p)  # type: ignore[misc]
        waiting = {w: [f for f in range(len(self.load.log)) if session.channels[f, w]] for w in session.alive("worker")}
        for w in waiting:
            if message := session.peers["worker", w].inbox:
                yield f"worker {w} takes {_name(message[0])}", lambda w=w: self._work(w, 1, ())  # type: ignore[misc]
        for w, blobs in waiting.items():
            if session.awake[w]:
                yield f"worker {w} goes on", lambda w=w: self._work(w, 0, ())  # type: ignore[misc]
            for f in blobs:
                yield f"worker {w} takes a blob of router {f}", lambda w=w, f=f: self._work(w, 0, (f,))  # type: ignore[misc]
            if len(session.peers["worker", w].inbox) + sum(len(session.channels[f, w]) for f in blobs) > 1:
                yield f"worker {w} takes all", lambda w=w, f=blobs: self._work(w, -1, f)  # type: ignore[misc]

    def _work(self, w: int, messages: int, routers: Sequence[int]) -> None:
        """A worker takes a message or a blob, or all there are (-1), and steps."""
        session = self.session
        assert session is not None
        for _ in range(messages if messages >= 0 else len(session.peers["worker", w].inbox)):
            session.hear(("worker", w))
        for f in routers:
            for _ in range(1 if messages >= 0 else len(session.channels[f, w])):
                session.deliver((f, w))
        worker = session.workers[w]
        before = None if worker.worker.environment is None else worker.worker.state
        self._step(w)
        dead = not session.peers["worker", w].alive
        self._durable = dead or (worker.worker.environment is not None and worker.worker.state != before)
        self.states.touch(("worker", w), stored=self._durable)

    # -- the failure --------------------------------------------------------------------------------------------------

    def _dead(self, name: Any) -> None:
        assert self.session is not None
        self.session.end(name)
        self.session.dying = 0

    def _die(self) -> None:
        if self.session is not None and self.session.dying is None:
            self.failure.happens("between two steps")
        raise SessionLost

    def _end_session(self) -> None:
        running = self.session is not None
        super()._end_session()
        if running and self._small.loses and self.free and (lost := self._choices.pick((0,) * (1 + self._slots))):
            self.states.lose(lost - 1)
            self.trace.append(f"the environment of worker {lost - 1} is lost")


def _name(message: Any) -> str:
    return type(message).__name__
