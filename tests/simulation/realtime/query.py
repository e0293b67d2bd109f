"""One simulated query: driver, coordinator, routers and workers are real; channels, Spark and Kafka are simulated.

Every choice comes from the seed: who goes on next, when a batch ends, who dies where. A task that dies is followed by
all others, some steps later; then Spark sends the batch again. The driver takes all tasks with it.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from chaos.changes import Asking
from chaos.damage import flip
from chaos.fibers import Killed
from chaos.recipes import Recipes
from chaos.violation import Violation, require
from pyspark.errors import PySparkException

from impls.driver.checkpoint import Checkpoint
from impls.driver.driver import Driver
from impls.driver.epochs import EpochRecord, StopNeeded
from impls.driver.milestones import awaiting, rising
from impls.durability.files import Files
from impls.errors import StateError
from impls.protocol.coordinator import Coordinator
from impls.protocol.order import Answers, EpochOrder
from impls.protocol.report import Report
from impls.protocol.session import Hello, Say
from impls.realtime.executor import SessionLost, SlotsNeeded
from impls.store.environment import store_path
from impls.worker.cells import CELL
from impls.worker.query import QuerySpec
from impls.worker.replicas import replica_path
from realtime.parameters import Parameters
from realtime.patches import DAMAGE
from realtime.session import Peer, Session
from realtime.topic import Topic
from realtime.troubles import Troubles
from realtime.workload import Workload

_STEPS_MAX = 20_000
_STARTS_MAX = 60
_IDLE_MAX = 4  # steps of a worker that change nothing, one after another


class Query:
    """epoch() runs one epoch to its end, whatever dies on the way; close() at the end.

    Attributes:
        record: of the last epoch.
        spec: what workers know of the query.
        applied: records that workers have reported, by epoch.
        asking: asks for changes of the pipeline.
        session: the tasks, None between two sessions.
        starts, sessions, boundaries, steps: how many drivers, sessions, ends of batches and steps there were.
        look: is called behind each step of anybody.
    """

    servers: tuple[str, ...] = ()
    look: Callable[[], None] = staticmethod(lambda: None)
    record: EpochRecord
    spec: QuerySpec

    def __init__(self, p: Parameters, load: Workload, troubles: Troubles, folder: Path):
        self._p, self.load, self._troubles, self._folder = p, load, troubles, folder
        self._random, self._flips = Random(p.seed + 3), Random(p.seed + 21)
        self.topic, self.session = Topic(troubles), None
        self._slots, self._batch, self._committed = p.slots, 0, [0] * p.partitions
        self._workers = 0
        self._needed: dict[int, int] = {}
        self.applied: dict[int, int] = {}
        self.starts = self.sessions = self.boundaries = self.steps = 0
        self._checkpoint: Checkpoint | None = None
        self._coordinator = Coordinator()
        self.session: Session | None = None
        kind = "timed" if p.timed else "chain" if load.chained else "counts"
        self.asking = Asking(p.changes, load.operator, kind, Recipes(), stacked=False)
        self._start()

    # -- the driver ---------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        """A driver begins; the one before is dead, and all tasks with it."""
        self._end_session()
        p = self._p
        if self._checkpoint is not None:
            self._checkpoint.close()
        self.starts += 1
        for partition in range(p.partitions if not p.timed else 0):  # a timed query waits for the old one's time
            if self._random.random() < p.anew:
                self.load.places.made_anew(partition)
        require(self.starts < _STARTS_MAX, "stuck", f"{self.starts} drivers were started")
        settings = {"bins": p.bins, "key": "key", "state": "own", "changelog": p.durability != "none"}
        self._checkpoint = Checkpoint(self._folder / "checkpoint", settings)
        self._checkpoint.keep_form(self.load.operator.state_form(), "long")
        self.files = None if p.durability == "none" else Files(str(self._checkpoint.own))
        output, state = self.topic, str(self._folder / "state")
        self.spec = QuerySpec(
            self._checkpoint.query, p.bins, self.load.operator, output, state, self.files, repeats=True,  # type: ignore[arg-type]
            on_error="skip" if p.refused else "fail", linked=p.linked > 0,
        )  # fmt: skip
        self._coordinator = Coordinator()
        self.driver = Driver(
            p.make_controller(), self._checkpoint, self, files=self.files, replay_epochs=p.replay_epochs,
            on_epoch=self._done,
        )  # fmt: skip
        self._coordinator.rise = rising(self.driver) if p.timed else None
        self._coordinator.awaited = awaiting(self.driver)
        self.driver.checkpoint = self._checkpoint  # type: ignore[attr-defined] # for check_journals

    def _done(self, record: EpochRecord) -> None:
        self.record = record
        self.applied[record.written.epoch] = sum(report.records for report in record.reports)
        self.asking.hear(record.events, self.driver.controller.changing)
        if self._random.random() < 0.8:  # else the driver's note is older, as a driver may die before it
            self._needed |= self._coordinator.needed

    def command(self, kind: str, value: int) -> None:
        """A user's command; it is durable also when the driver dies behind it."""
        goal = self._p.goal(kind, value, self.driver.controller.commanded)
        try:
            self.driver.command("rebalance", goal, kind)
        except Killed:
            self._start()

    def ask(self, epoch: int) -> None:
        """Asks for the changes of the pipeline that are due."""
        if not self.asking.ask(self.driver, epoch):
            self._start()

    def epoch(self) -> None:
        """Runs the next epoch, and before it what happens between two epochs."""
        target = self.driver.last_epoch + 1
        self._quietly(self._random.choice((0, 0, 5, 30, 100)) if self.load.left else 200)
        while self.driver.last_epoch < target:
            try:
                if self._random.random() < 0.5:
                    self._await_session()
                self.driver.run_epoch(None, target)
            except SessionLost:
                self._end_session()
            except SlotsNeeded as needed:
                self._end_session()
                self._slots = needed.workers
            except StopNeeded as stop:
                self._stop(stop.epoch)
            except Killed:
                self._start()
            except StateError as error:
                raise Violation("driver", f"{type(error).__name__}: {error}") from error

    def last_epoch(self) -> None:
        """Runs an epoch behind which routers send nothing, as the query is stopped."""
        target = self.driver.last_epoch + 1
        while self.driver.last_epoch < target:  # a driver that begins in it is stopped too
            self._coordinator.last = True
            self.epoch()

    @property
    def read_until(self) -> list[int]:
        """Of each partition, the index behind the rows that the last epoch has waited for."""
        needed = dict(self._coordinator.needed)
        return [self.load.places.first(f, needed, at) for f, at in enumerate(self._committed)]

    def start_again(self) -> None:
        """Begins anew behind a stop."""
        self._start()

    def _stop(self, epoch: int) -> None:
        """The query ends as its plan asks for, and so may the driver, before or behind that."""
        self._end_session()
        try:
            self.driver.stopped(epoch)
        except Killed:
            self._start()
        else:
            if self._random.random() < 0.5:
                self._start()

    def run(self, order: EpochOrder, batch: Any) -> Answers:
        """Runs an epoch as `RealTimeExecutor` does."""
        self._workers = order.written.workers
        self._say(self._coordinator.begin(order))
        first = self.steps
        while not self._coordinator.done:
            require(self.steps - first < _STEPS_MAX, "stuck", f"epoch {order.written.epoch} has no end")
            if (slots := self._coordinator.slots) and order.written.workers > slots:
                raise SlotsNeeded(order.written.workers)
            self._troubles.point("job")
            self._act(order.written.epoch)
            if self._coordinator.failed is not None and self._random.random() < 0.5:
                raise SessionLost
        rows = [(Report.from_json(e.report), np.frombuffer(e.cells, CELL)) for e in self._coordinator.ended.values()]
        return Answers.of(rows, build_ms=0.0, job_ms=1.0)

    def _await_session(self) -> None:
        first = self.steps
        while not self._coordinator.complete:
            require(self.steps - first < _STEPS_MAX, "stuck", "the session does not become complete")
            self._act(None)

    def _quietly(self, steps: int) -> None:
        try:
            for _ in range(steps):
                self._act(None)
        except SessionLost:
            self._end_session()

    # -- Spark --------------------------------------------------------------------------------------------------------

    def _act(self, epoch: int | None) -> None:
        """One step of a task, of a channel, of the source or of Spark; `epoch` is the one under way."""
        self.steps += 1
        session = self.session
        if session is None:
            session = self.session = self._begin_session()
        if session.over:
            self._batch_ended()
            return
        if session.dying is not None:
            session.dying -= 1
            if session.dying < 0:
                raise SessionLost
        ends = self._troubles.on and not session.ending and self._all_begun(session)
        if ends and self._random.random() < self._p.batch_end:
            session.ending = True
        actions = session.actions(self._tell, self._step, self._route)
        if not actions and session.dying is None and not session.ending:
            require(epoch is None, "stuck", f"nobody can do anything for epoch {epoch}")
        if self.load.left and self._random.random() < self._p.come:
            self.load.produce(self._random.randint(1, 8))
        if actions:
            self._random.choice(actions)()
            self.look()

    def _all_begun(self, session: Session) -> bool:
        """Whether every worker of the epoch has begun it in the session: batches are much longer than epochs."""
        begun = [worker.worker.task is not None for worker in session.workers[: self._workers]]
        return self._coordinator.complete and all(begun)

    def _begin_session(self) -> Session:
        """Spark begins a batch, or one again; then at what is needed of it."""
        self.sessions += 1
        first = self.load.places.first
        self._committed = [first(f, self._needed, at) for f, at in enumerate(self._committed)]
        return Session(self._p, self.load, self.spec, (self.sessions, self._batch, self._committed, self._slots))

    def _batch_ended(self) -> None:
        """Spark notes that the batch has ended, or dies before that."""
        session, self.session = self.session, None
        assert session is not None
        for peer in session.peers.values():
            while peer.outbox:
                self._tell(peer)
        if self._troubles.hit("again"):
            raise SessionLost
        self.boundaries += 1
        self._batch, self._committed = session.batch + 1, session.positions

    def _end_session(self) -> None:
        """Kills all tasks; environments of some of them may be lost."""
        self._coordinator.end()
        if self.session is None:
            return
        self.session.close()
        self.session = None
        for worker in range(self._slots if self.files is not None else 0):
            if self._troubles.hit("lose"):
                path = self._random.choice((store_path, store_path, replica_path))(self.spec.state_dir, worker)
                shutil.rmtree(path, ignore_errors=True)

    def _tell(self, peer: Peer) -> None:
        """The driver takes in a task's next word, or that it is gone."""
        if not peer.outbox:
            peer.told_gone = True
            self._coordinator.left(peer.hello)
            return
        said = peer.outbox.popleft()
        is_hello = isinstance(said, Hello)
        self._say(self._coordinator.joined(said) if is_hello else self._coordinator.receive(peer.hello, said))

    def _say(self, said: list[Say]) -> None:
        for say in said:
            peer = None if self.session is None else self.session.peers.get((say.role, say.index))
            if peer is not None and peer.alive:
                peer.inbox.append(say.message)

    def _step(self, w: int) -> None:
        session, self._troubles.task = self.session, w
        assert session is not None
        self._flip(w)
        try:
            before, troubles = session.progress(w), self._troubles.fired.total()
            session.awake[w] = session.workers[w].step()
            idle = session.progress(w) == before and self._troubles.fired.total() == troubles
            session.idle[w] = session.idle[w] + 1 if session.awake[w] and idle else 0
            require(session.idle[w] < _IDLE_MAX, "busy", f"worker {w} does nothing again and again")
        except Killed:
            self._dead(("worker", w))
        except StateError as error:
            expected = "No space" in str(error) or DAMAGE in str(error)
            require(expected, "task", f"worker {w} ends with {type(error).__name__}: {error}")
            self._dead(("worker", w))
        except PySparkException as error:  # of a processor, for a row that it may not give any more
            raise Violation("operator", str(error)) from error
        finally:
            self._troubles.task = None

    def _flip(self, w: int) -> None:
        """Bits may flip in a worker's environment, which its process has open perhaps."""
        path = store_path(self.spec.state_dir, w)
        if self._p.rates.get("flip") and (path / "data.mdb").exists() and self._troubles.hit("flip"):
            flip(path, self._flips.randint(1, 4), self._flips)

    @property
    def checkpoint(self) -> Checkpoint:
        """The checkpoint, as the driver that lives has it open."""
        assert self._checkpoint is not None, "a driver has begun"
        return self._checkpoint

    @property
    def fired(self) -> set[str]:
        """The kinds of what has gone wrong so far."""
        return set(+self._troubles.fired)

    @property
    def flipped(self) -> bool:
        """Whether bits have flipped: damage that nobody has read yet may be anywhere from then on."""
        return self._troubles.fired["flip"] > 0

    def _route(self, f: int) -> None:
        session, self._troubles.task = self.session, f
        assert session is not None
        blobs = session.read(f, self._random.randrange(100))
        if self._troubles.hit("router"):
            session.send(f, blobs[: self._random.randrange(len(blobs) + 1)])
            self._dead(("router", f))
        else:
            session.send(f, blobs)
        self._troubles.task = None

    def _dead(self, name: Any) -> None:
        session = self.session
        assert session is not None
        session.end(name)
        if session.dying is None:
            session.dying = self._random.randint(0, self._p.linger)

    def close(self) -> None:
        """Ends everything."""
        self._troubles.on = False
        self._end_session()
        if self._checkpoint is not None:
            self._checkpoint.close()
