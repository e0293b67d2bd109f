"""A worker of real-time mode: it applies what has come in turns, and moves bins as the driver's ticks say."""

import contextlib
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import lmdb

from impls.errors import StateError
from impls.protocol.eventtime import NO_TIME
from impls.protocol.order import EpochOrder
from impls.protocol.plan import Pull
from impls.protocol.report import Report
from impls.protocol.session import Alive, Due, Ended, Final, Marks, Tick
from impls.realtime.blobs import Blob, Intake
from impls.realtime.environment import TurnEnvironment
from impls.realtime.flow import AtMost, Pace
from impls.realtime.merging import Breakdown, highest, merged_report, restored
from impls.realtime.turn import TurnInput, WorkerTick, end_tick, run_turn
from impls.store.environment import DAMAGE, MAP_BYTES
from impls.store.records import counts
from impls.worker.parts import Cause, Untrusted
from impls.worker.query import QuerySpec, Task
from impls.worker.versions import refits_of, still_refused

_ALIVE_S = 1.0
_REBUILT_MOST = 4  # damage may come with each of some pulls, or in what was just restored


class TurnWorker:
    """take() blobs and hear() the driver at any time, then step(); close() at the end. Used by one thread.

    Attributes:
        spare: step() would do nothing before something comes.
        waiting: blobs that were taken and are not applied.
        pace: how fast it is.

    Args:
        spec: the query.
        worker: the worker's number.
        batch: Spark's number of the batch whose records come.
        say: says something to the driver.
    """

    def __init__(self, spec: QuerySpec, worker: int, *, batch: int, say: Callable[[Any], None]):
        self._spec, self._worker, self._batch, self._say = spec, worker, batch, say
        self._intake, self.pace = Intake(worker), Pace()
        self._orders: deque[EpochOrder] = deque()
        self._told: list[Marks | Final] = []
        self._env: TurnEnvironment | None = None
        self._task: Task | None = None
        self._tick: WorkerTick | None = None
        self._report = Report(worker)
        self._breakdown = Breakdown()
        self._missing: set[int] = set()  # bins routed here whose state has not come, after the last tick
        self._said_final = False
        self._progress = AtMost(lambda: say(Alive(worker)), _ALIVE_S)
        self._resumed = False  # the task has had an environment
        self._rebuilt = 0  # for damage, since a turn was committed
        self._due: int | None = None  # time of the earliest timer, when the last tick ended
        self._furthest: dict[int, int] = {}  # highest event time by partition of the input

    def hear(self, message: Tick | Marks | Final) -> None:
        """Takes what the driver says."""
        if not isinstance(message, Tick):
            self._told.append(message)
            return
        known = [order.written.epoch for order in self._orders]
        known += [] if self._tick is None else [self._now.epoch]
        if message.order.written.epoch > max(known, default=-1):  # else it goes on with it
            self._orders.append(message.order)

    def take(self, blobs: Sequence[Blob]) -> None:
        """Takes blobs in the order in which they came; those of a later tick wait for its order."""
        self._intake.put(blobs)

    @property
    def spare(self) -> bool:
        """Whether step() would do nothing before something comes."""
        waits = self._task is None or not self._intake.has(self._task.epoch)
        return waits and not self._orders and not self._told

    @property
    def waiting(self) -> int:
        """Blobs that were taken and are not applied, as those of a tick whose order has not come."""
        return len(self._intake)

    def step(self) -> bool:
        """Runs one turn with what has come, or a part of it, and returns whether to call again at once.

        Raises StateError when the stored state does not fit, or cannot be read or written, OperatorError for a record.
        """
        try:
            return self._step()
        except lmdb.MapFullError:
            self._grow()
        except DAMAGE as error:
            self._rebuild(error)
        except lmdb.Error as error:
            where = self._spec.state_dir
            raise StateError(f"Worker {self._worker} cannot write its state in {where}: {error}.") from error
        return True

    def close(self) -> None:
        """Closes the environment."""
        if self._env is not None:
            self._env.close()
            self._env = None

    # -- one step -----------------------------------------------------------------------------------------------------

    def _step(self) -> bool:
        if self._orders and self._tick is None:
            self._begin_tick(self._orders[0])
            self._orders.popleft()  # behind it: an environment that turns out to be damaged is rebuilt, and it begins
        if self._tick is None:
            return self._between_ticks()
        for message in self._told:
            self._tick.hear(message)
        self._told.clear()
        closing = self._tick.closing(self._intake.applied)
        blobs = self._intake.next(self._now.epoch, self.pace.window)
        pulls = self._tick.due(self._need(blobs), closing=closing)
        if blobs or pulls or self._first_turn():
            self._turn(blobs, pulls)
        self._tick.pulled(pulls, closing=closing)
        return self._answer()

    def _answer(self) -> bool:
        """Says what can be said now, and returns whether to go on at once."""
        assert self._tick is not None, "a tick has begun"
        if not self._said_final and self._tick.reached(self._intake.applied):
            self._said_final = True
            self._say(Final(self._now.epoch, self._worker))
        closing = self._tick.closing(self._intake.applied)
        if self._tick.due(self._need(()), closing=closing):
            return True
        if closing:
            self._tick.pulled([], closing=True)
        if self._tick.ready(self._intake.applied):
            self._end_tick()
        return not self.spare

    def _between_ticks(self) -> bool:
        """Goes on applying by the last order until the next one comes."""
        self._told.clear()  # what is said of a tick that has ended
        if self._env is not None and (blobs := self._intake.next(self._now.epoch, self.pace.window)):
            self._turn(blobs, [])
        return not self.spare

    @property
    def _now(self) -> Task:
        assert self._task is not None, "a tick has begun"
        return self._task

    @property
    def _open(self) -> TurnEnvironment:
        assert self._env is not None, "a tick has begun"
        return self._env

    def _need(self, blobs: Sequence[Blob]) -> dict[int, int]:
        """Returns how many records wait for each bin whose state is not here."""
        if self._tick is None or not self._tick.missing:
            return {}
        need = {bin_: records for bin_, (records, _) in self._open.queues.lengths.items()}
        for blob in blobs:
            for bin_, records in zip(*counts(blob.table.column("bin").to_numpy()), strict=True):
                need[bin_] = need.get(bin_, 0) + records
        return need

    # -- ticks --------------------------------------------------------------------------------------------------------

    def _begin_tick(self, order: EpochOrder) -> None:
        refused = still_refused(self._task, order)
        self._task = Task(self._spec, order, self._worker, refused=refused, progress=self._progress)
        self._open_for(self._task)
        env, epoch = self._open, order.written.epoch
        self._said_final = False
        if env.ended_tick == epoch:  # an earlier task has ended it, and the driver has not taken that in
            report, cells = env.stored_report(epoch)
            if report is None:
                raise StateError(f"Worker {self._worker} has ended tick {epoch}, but has no report of it.")
            self._missing = WorkerTick(order, self._worker, Report.from_json(report).moves.bins).missing
            self._say(Final(epoch, self._worker))
            self._say(Ended(epoch, self._worker, report, cells))
            return
        self._tick = WorkerTick(order, self._worker, self._report.moves.bins)

    def _open_for(self, task: Task) -> None:
        """Opens the environment, also anew when the worker was not in the last ticks."""
        if self._env is not None and self._env.ended_tick not in {task.epoch - 1, task.epoch}:
            self.close()
        if self._env is None:
            self._env = self._environment(task)
            self._report = merged_report(restored(self._env.state, self._worker), self._env.report)
        self._env.task = task

    def _environment(self, task: Task, untrusted: Untrusted | None = None) -> TurnEnvironment:
        """Opens the environment, with a map that takes all of the state with which it is made."""
        map_bytes, env = MAP_BYTES, None
        while env is None:
            with contextlib.suppress(lmdb.MapFullError):
                env = TurnEnvironment(
                    task, batch=self._batch, map_bytes=map_bytes, resumed=self._resumed, untrusted=untrusted
                )
            map_bytes *= 2
        self._resumed = True
        return env

    def _first_turn(self) -> bool:
        """Returns whether the tick has something to do that waits for no record."""
        order = self._now.order
        if self._open.state.begun == self._now.epoch:
            return False
        timed = self._spec.operator.event_time is not None
        refits = any(order.written.plan.routing[bin_] == self._worker for bin_ in refits_of(order.written))
        drops = any(worker == self._worker for _, worker in order.written.drops)
        return timed or bool(self._open.queues.lengths) or drops or refits

    def _end_tick(self) -> None:
        """Ends the tick and answers."""
        assert self._tick is not None, "it is this one"
        self._report.breakdown = self._breakdown.means()
        ended = end_tick(self._open, self._now, self._report, self._blocked(()))
        self._due = ended.due
        self._say(ended)
        self._missing = self._tick.missing
        self._tick, self._report, self._breakdown = None, Report(self._worker), Breakdown()

    # -- turns --------------------------------------------------------------------------------------------------------

    def _turn(self, blobs: Sequence[Blob], pulls: Sequence[Pull]) -> None:
        """Runs one turn and takes in what it leaves; of one that comes to nothing the blobs are given back."""
        self._breakdown.begin(blobs)
        given, begin = TurnInput(blobs, pulls, self._blocked(pulls), self._tick is not None), time.perf_counter()
        try:
            self._task, done = run_turn(self._open, self._now, given, self._report)
        except (lmdb.Error, *DAMAGE):
            self._intake.give_back(blobs)
            raise
        self._breakdown.done(done.ms)
        self._rebuilt = 0
        seconds = time.perf_counter() - begin - done.ms.get("pull", 0.0) / 1e3
        self.pace.took(sum(len(blob.table) for blob in blobs), seconds)
        self._report = done.report
        self._intake.count(blobs)
        if self._tick is not None:
            self._progress()
        self._look_for_timers()

    def _look_for_timers(self) -> None:
        """Tells the driver when a partition has come to the time of the earliest timer, once for each partition."""
        state, event_time = self._open.state, self._spec.operator.event_time
        if event_time is None:
            return
        at = None if self._due is None else self._due + event_time.disorder
        come = False
        for partition, time_ in highest([*state.times, *state.ahead]):
            before = self._furthest.get(partition, NO_TIME)
            come = come or (at is not None and before < at <= time_)
            self._furthest[partition] = max(before, time_)
        if come:
            self._say(Due(self._worker))

    def _blocked(self, pulls: Sequence[Pull]) -> set[int]:
        """Returns the bins that run nothing now.

        Those that the plan holds are held by the worker to which they are routed now; records that went to the old
        owner before are to be in the state when that is pulled. Between two ticks none is held: the driver, told of an
        empty queue, may route its bin away in the next one.
        """
        if self._tick is None:
            return self._missing
        plan = self._now.order.written.plan
        held = {bin_ for bin_ in plan.hold if int(plan.routing[bin_]) == self._worker}
        return (self._tick.missing - {pull.bin for pull in pulls}) | held

    def _grow(self) -> None:
        try:
            self._open.grow()
        except DAMAGE as error:
            self._rebuild(error)

    def _rebuild(self, error: BaseException) -> None:
        """Replaces an environment that turned out to be damaged by one from the checkpoint."""
        task, self._rebuilt = self._task, self._rebuilt + 1
        if task is None or self._spec.files is None or self._rebuilt > _REBUILT_MOST:
            raise StateError(
                f"Worker {self._worker} cannot use its state in {self._spec.state_dir}: {error}"
            ) from error
        opened = self._env is not None
        self.close()
        self._env = self._environment(task, Untrusted(Cause.DAMAGED, str(error)))
        before = self._report if opened else restored(self._env.state, self._worker)
        if self._tick is not None and self._env.ended_tick == task.epoch:  # it was found behind the tick's last turn
            self._tick, before = None, restored(self._env.state, self._worker)
            self._orders.appendleft(task.order)
        self._report = merged_report(before, self._env.report)
