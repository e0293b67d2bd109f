"""A worker: begin(), commit() and end() of its epochs, on its environment, without Spark, sockets and threads.

Both modes call it. In micro-batches an epoch has one commit, which ends it (`impls.worker.attempts`); in real time it
has as many as come (`impls.realtime.worker`).

Whoever calls it has four duties:

1. begin() with the order of an epoch, which is not before the last one that it has ended.
2. Where `ended` says that the epoch has been committed before, no commit() of it; end() then repeats its answer.
3. commit() with pulls that `pulls.due` returned, from old owners that change these bins no more, then `pulls.pulled`.
4. end() once every record that was sent by the routing before is committed and `pulls.complete`.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import lmdb
import numpy as np
import pyarrow as pa

from impls.durability.restore import no_progress
from impls.errors import StateError
from impls.protocol.order import EpochOrder
from impls.protocol.plan import Pull
from impls.protocol.report import Report
from impls.store.bins import read_size
from impls.store.environment import DAMAGE, MAP_BYTES
from impls.store.records import counts
from impls.worker.commit import CommitInput, commit_end, earliest_timer, follow_end, run_commit, whole_report
from impls.worker.environment import Environment
from impls.worker.parts import Cause, Untrusted, free_space
from impls.worker.pull import Pulls
from impls.worker.query import QuerySpec, Task
from impls.worker.refused import Again
from impls.worker.reports import Times, kept_report, merged_report, with_times
from impls.worker.state import WorkerState
from impls.worker.versions import refits_of, still_refused, without

_REBUILT_MOST = 4  # damage may come with each of some pulls, or in what was just restored
_T = TypeVar("_T")


@dataclass(frozen=True)
class Answer:
    """A worker's answer to an epoch.

    Attributes:
        report: of the epoch.
        cells: latency cells, dtype `impls.worker.cells.CELL`.
        due: in real time, the time of the earliest timer of its bins, None where there is none.
    """

    report: Report
    cells: bytes
    due: int | None = None


class Worker:
    """begin(), commit() any number of times, end(), and again; close() in any case.

    A map that is full is made larger, an environment that turns out to be damaged is rebuilt from the checkpoint, and a
    record or a version of the pipeline on which the operator fails is left out: then the step is done again.

    Attributes:
        environment: what is open, None for nothing.
        task: in the epoch under way, or the last one; None before the first.
        pulls: those of the epoch under way.
        in_epoch: an epoch has begun, and has not ended.

    Args:
        spec: the query.
        number: the worker's number.
        batch: Spark's batch whose records come, where one may come again; None where a batch is an epoch.
        attempt: counts from 0.
        host: name of the host, "" where there is only one.
        untrusted: why its environment is to be rebuilt, None to trust what is there.
        progress: called behind each step of what may take long.
    """

    def __init__(
        self,
        spec: QuerySpec,
        number: int,
        *,
        batch: int | None = None,
        attempt: int = 0,
        host: str = "",
        untrusted: Untrusted | None = None,
        progress: Callable[[], None] = no_progress,
    ):
        self._spec, self._number, self._batch = spec, number, batch
        self._attempt, self._host, self._progress = attempt, host, progress
        self._untrusted, self._map_bytes = untrusted, MAP_BYTES
        self.environment: Environment | None = None
        self.task: Task | None = None
        self._report = Report(number)  # of the epoch under way, or to come
        self._ended: tuple[Report, bytes | None] | None = None  # the whole report; cells of an epoch ended before
        self._missing: set[int] = set()  # bins routed here whose state has not come, behind the last epoch
        self._resumed = False  # an environment has been opened
        self._rebuilt = 0  # for damage, since a commit
        self.pulls: Pulls
        self.in_epoch = False

    # -- an epoch -----------------------------------------------------------------------------------------------------

    def begin(self, order: EpochOrder) -> None:
        """Begins an epoch: opens the environment, or rebuilds it.

        Raises StateError when the stored state does not fit the epoch, which is then left as it is.
        """
        refused = still_refused(self.task, order)
        self.task = Task(
            self._spec, order, self._number, self._attempt, self._host, refused=refused, progress=self._progress
        )
        self._ended = None
        start, was_open = time.perf_counter(), self.environment is not None
        self._steadily(self._open)
        if not was_open:
            self._report.ms["open"] = (time.perf_counter() - start) * 1e3
        self.in_epoch = True
        self._find_end()
        done = (self._report if self._ended is None else self._ended[0]).moves.bins
        self.pulls = Pulls(order, self._number, done)

    @property
    def ended(self) -> bool:
        """Whether the worker has committed the end of the epoch."""
        return self._ended is not None

    def need(self, records: Sequence[pa.Table]) -> dict[int, int]:
        """Returns how many records wait for each bin whose state is not here, queued ones and those given."""
        if not self.in_epoch or not self.pulls.missing:
            return {}
        need = {bin_: waiting for bin_, (waiting, _) in self._env.queues.lengths.items()}
        for table in records:
            for bin_, number in zip(*counts(table.column("bin").to_numpy()), strict=True):
                need[bin_] = need.get(bin_, 0) + number
        return need

    def has_work(self) -> bool:
        """Returns whether the epoch has something to do that waits for no record."""
        order = self._now.order
        if self._env.state.begun == self._now.epoch:
            return False
        timed = self._spec.operator.event_time is not None
        refits = any(order.written.plan.routing[bin_] == self._number for bin_ in refits_of(order.written))
        drops = any(worker == self._number for _, worker in order.written.drops)
        return timed or bool(self._env.queues.lengths) or drops or refits

    def commit(
        self,
        records: pa.Table | None,
        pulls: Sequence[Pull] = (),
        *,
        times: Times | None = None,
        ahead: Times | None = None,
        ends: bool = False,
    ) -> dict[str, float]:
        """Commits records with what they change, logs and sends; returns milliseconds by phase.

        Args:
            records: of the worker's bins, in (partition, offset) order; None for none.
            pulls: bins to pull.
            times: [partition, highest event time] of records that count in the epoch, see `impls.worker.reports`.
            ahead: the same of those that count in the next one.
            ends: nothing else comes in the epoch.

        Raises:
            StateError: the stored state cannot be read or written, or another task has taken it over.
            OperatorError: for a record.
        """
        given = CommitInput(records, pulls, self._blocked(pulls), times or [], ahead or [], self.in_epoch, ends)
        done: Report = self._steadily(lambda: self._commit(given))
        self._rebuilt = 0
        self._report = merged_report(self._report, done)
        if ends:
            self.pulls.pulled(pulls)
            whole = whole_report(self._env, self._now, self._report, given.blocked)
            self._ended = with_times(whole, self._env.state.counted), None
        return done.ms

    def end(self, received: Sequence[pa.Table] | None = None) -> Answer:
        """Ends the epoch and returns the worker's answer; of one that it has ended before, the same again.

        Args:
            received: the epoch's records, those for standbys included; None where workers commit in no common order.
        """
        report, cells, due = self._steadily(lambda: self._end(received))
        self._missing, self.in_epoch, self._ended = self.pulls.missing, False, None
        if cells is None:
            cells, report.negative = self._env.end_latencies()
            self._report = Report(self._number)
        return Answer(report, cells, due)

    def close(self) -> None:
        """Closes the environment."""
        if self.environment is not None:
            self.environment.close()
            self.environment = None

    # -- what a caller may ask between them ---------------------------------------------------------------------------

    @property
    def state(self) -> WorkerState:
        """What the last commit has stored beside the bins."""
        return self._env.state

    def note_breakdown(self, means: dict[str, float]) -> None:
        """Adds to the report of the epoch how long its records spent in each step, ms."""
        self._report.breakdown = means

    # -- steps --------------------------------------------------------------------------------------------------------

    @property
    def _now(self) -> Task:
        assert self.task is not None, "begin() comes first"
        return self.task

    @property
    def _env(self) -> Environment:
        assert self.environment is not None, "begin() comes first"
        return self.environment

    def _blocked(self, pulls: Sequence[Pull]) -> set[int]:
        """Returns the bins that run nothing now.

        Those that the plan holds are held by the worker to which they are routed now; records that went to the old
        owner before are to be in the state when that is pulled. Between two epochs none is held: the driver, told of an
        empty queue, may route its bin away in the next one.
        """
        if not self.in_epoch:
            return self._missing
        plan = self._now.order.written.plan
        held = {bin_ for bin_ in plan.hold if int(plan.routing[bin_]) == self._number}
        return (self.pulls.missing - {pull.bin for pull in pulls}) | held

    def _commit(self, given: CommitInput) -> Report:
        if given.ends and self._env.ended_epoch == self._now.epoch:
            raise StateError(f"Worker {self._number} has ended epoch {self._now.epoch} before: it is to be run again.")
        self._env.task = self._now
        return run_commit(self._env, self._now, given, self._report)

    def _end(self, received: Sequence[pa.Table] | None) -> tuple[Report, bytes | None, int | None]:
        env, task = self._env, self._now
        if self._ended is None:
            self._find_end()
        if self._ended is None:
            whole = commit_end(env, task, self._report, self._blocked(()))
            self._ended = with_times(whole, env.state.counted), None
        follow_end(env, task, self._ended[0], received)
        due = None if self._batch is None else earliest_timer(env, task, self._blocked(()))
        return *self._ended, due

    def _find_end(self) -> None:
        """Takes over the end of the epoch where it was committed before."""
        env, task = self._env, self._now
        if env.ended_epoch != task.epoch:
            return
        found = env.ended_report(task.epoch)
        if found is None:
            raise StateError(f"Worker {self._number} has ended epoch {task.epoch}, but has no report of it.")
        report, cells = found
        report.attempt, report.repeated = self._attempt, True
        report.ms = {**report.ms, **self._report.ms}
        report.done_us = report.done_us or time.time_ns() // 1000
        self._ended = report, cells

    # -- the environment ----------------------------------------------------------------------------------------------

    def _steadily(self, step: Callable[[], _T]) -> _T:
        """Does a step again as long as something that stops it can be mended."""
        while True:
            try:
                return step()
            except lmdb.MapFullError:
                self._grow()
            except DAMAGE as error:
                self._rebuild(error)
            except Again as error:
                self.task = without(self._now, error)
            except lmdb.Error as error:
                folder = self._now.state_dir
                where = f"{folder}: {error} ({free_space(folder)})"
                raise StateError(f"Worker {self._number} cannot write its state in {where}.") from error

    def _open(self) -> None:
        """Opens the environment, also anew when the worker was not in the last epochs."""
        task = self._now
        if self.environment is not None and self.environment.ended_epoch not in {task.epoch - 1, task.epoch}:
            self.close()
        if self.environment is None:
            self.environment = self._opened()
            self._report = merged_report(kept_report(self._env.state, self._number), self._env.report)
            if task.order.first:
                self._report_created()
        self._env.task = task

    def _opened(self) -> Environment:
        found = Environment(
            self._now, batch=self._batch, map_bytes=self._map_bytes, resumed=self._resumed, untrusted=self._untrusted
        )
        self._resumed, self._untrusted, self._map_bytes = True, None, MAP_BYTES
        return found

    def _report_created(self) -> None:
        """Reports what the bins have that the first epoch creates, also where an earlier attempt has made them."""
        mine = np.flatnonzero(self._now.order.written.plan.routing == self._number).tolist()
        with self._env.reading() as txn:
            self._report.sizes = (mine, [read_size(txn, bin_)[1] for bin_ in mine])

    def _grow(self) -> None:
        if self.environment is None:  # it is being made
            self._map_bytes *= 2
            return
        try:
            self.environment.grow()
        except DAMAGE as error:
            self._rebuild(error)

    def _rebuild(self, error: BaseException) -> None:
        """Has an environment that turned out to be damaged replaced by one from the checkpoint."""
        self._rebuilt += 1
        if self._spec.files is None or self._rebuilt > _REBUILT_MOST:
            raise StateError(f"Worker {self._number} cannot use its state in {self._now.state_dir}: {error}") from error
        was_open = self.environment is not None
        self.close()
        self._untrusted = Untrusted(Cause.DAMAGED, str(error))
        if not was_open:
            return
        before = self._report
        self._steadily(self._open)
        ended = self._env.ended_epoch == self._now.epoch
        self._report = merged_report(kept_report(self._env.state, self._number) if ended else before, self._env.report)
        if self._ended is not None and not ended:
            raise StateError(f"Worker {self._number} has lost the end of epoch {self._now.epoch}: {error}") from error
