"""A worker: begin(), commit() and end() of its epochs, on its environment, without Spark, sockets and threads.

Both modes call it. In micro-batches an epoch has one commit, which ends it (`impls.worker.attempts`); in real time it
has as many as come (`impls.realtime.worker`).

Whoever calls it has five duties:

1. begin() with the order of an epoch, which is not before the last one that it has ended.
2. Where `ended` says that the epoch has been committed before, no commit() of it; end() then repeats its answer.
3. commit() with pulls that `pulls.due` returned, from old owners that change these bins no more, then `pulls.pulled`.
4. rise() with a watermark only when all workers have committed every record below it that comes in order.
5. end() once every record that was sent by the routing before is committed and `pulls.complete`.
"""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from impls.durability.restore import no_progress
from impls.errors import StateError
from impls.protocol.order import EpochOrder
from impls.protocol.plan import Pull
from impls.protocol.report import Report
from impls.store.records import counts
from impls.worker.commit import CommitInput, commit_end, earliest_timer, follow_end, run_commit
from impls.worker.environment import Environment
from impls.worker.held import Held
from impls.worker.parts import Untrusted
from impls.worker.pull import Pulls
from impls.worker.query import QuerySpec, Task
from impls.worker.reports import Times, merged_report, with_times
from impls.worker.state import WorkerState
from impls.worker.versions import refits_of, still_refused


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
        self._held = Held(number, batch=batch, untrusted=untrusted)
        self._ended: tuple[Report, bytes | None] | None = None  # the whole report, and the cells once they are known
        self._missing: set[int] = set()  # bins routed here whose state has not come, behind the last epoch
        self._rises = False  # timers are due because the watermark has risen within the epoch
        self.pulls: Pulls
        self.in_epoch = False

    # -- an epoch -----------------------------------------------------------------------------------------------------

    def begin(self, order: EpochOrder) -> None:
        """Begins an epoch: opens the environment, or rebuilds it.

        Raises StateError when the stored state does not fit the epoch, which is then left as it is.
        """
        held, self._ended = self._held, None
        start, was_open = time.perf_counter(), held.environment is not None
        refused = still_refused(held.task, order)
        task = Task(self._spec, order, self._number, self._attempt, self._host, refused, progress=self._progress)
        held.begin(replace(task, single=self._batch is None))
        if not was_open:
            held.report.ms["open"] = (time.perf_counter() - start) * 1e3
        self.in_epoch, self._rises = True, False
        self._find_end()
        so_far = held.report if self._ended is None else self._ended[0]
        risen = held.env.state.risen if self._ended is None else so_far.event_time.until
        held.task, done = replace(held.now, risen=risen), so_far.moves.bins
        self.pulls = Pulls(order, self._number, done)

    @property
    def ended(self) -> bool:
        """Whether the worker has committed the end of the epoch."""
        return self._ended is not None

    def need(self, records: Sequence[pa.Table]) -> dict[int, int]:
        """Returns how many records wait for each bin whose state is not here, queued ones and those given."""
        if not self.in_epoch or not self.pulls.missing:
            return {}
        need = {bin_: waiting for bin_, (waiting, _) in self._held.env.queues.lengths.items()}
        for table in records:
            for bin_, number in zip(*counts(table.column("bin").to_numpy()), strict=True):
                need[bin_] = need.get(bin_, 0) + number
        return need

    def rise(self, watermark: int | None) -> None:
        """Lets the watermark rise within the epoch; None, or one that is not higher, changes nothing."""
        task = self._held.now
        if watermark is None or (task.watermark is not None and watermark <= task.watermark):
            return
        self._held.task = replace(task, risen=watermark)
        self._rises = self._timer_is_due()

    @property
    def rises(self) -> bool:
        """Whether the next commit is to run timers because the watermark has risen: records come behind it."""
        return self._rises

    def earliest_timer(self) -> int | None:
        """Returns the event time of the earliest timer of bins that run, None without timers of event time."""
        held = self._held
        return held.steadily(lambda: earliest_timer(held.env, held.now, self._blocked(())))

    def _timer_is_due(self) -> bool:
        watermark, due = self._held.now.watermark, self.earliest_timer()
        return watermark is not None and due is not None and due <= watermark

    def has_work(self) -> bool:
        """Returns whether the epoch has something to do that waits for no record."""
        order = self._held.now.order
        if self._held.env.state.begun == self._held.now.epoch:
            return self._rises
        timed = self._spec.operator.event_time is not None and (order.written.clock is not None or self._timer_is_due())
        refits = any(order.written.plan.routing[bin_] == self._number for bin_ in refits_of(order.written))
        drops = any(worker == self._number for _, worker in order.written.drops)
        return timed or bool(self._held.env.queues.lengths) or drops or refits

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
        given = CommitInput(
            records, pulls, self._blocked(pulls), times or [], ahead or [], self.in_epoch, ends, self._rises
        )
        held = self._held
        done: Report = held.steadily(lambda: self._commit(given))
        held.committed()
        self._rises = False
        held.report = done if ends else merged_report(held.report, done)
        if ends:
            self.pulls.pulled(pulls)
            self._ended = with_times(done, held.env.state.counted), None
        return done.ms

    def end(self, received: Sequence[pa.Table] | None = None) -> Answer:
        """Ends the epoch and returns the worker's answer; of one that it has ended before, the same again.

        Args:
            received: the epoch's records, those for standbys included; None where workers commit in no common order.
        """
        answer = self._held.steadily(lambda: self._end(received))
        self._missing, self.in_epoch, self._ended = self.pulls.missing, False, None
        if not answer.report.repeated:
            self._held.report = Report(self._number)
        return answer

    def close(self) -> None:
        """Closes the environment."""
        self._held.close()

    # -- what a caller may look at ------------------------------------------------------------------------------------

    @property
    def environment(self) -> Environment | None:
        """What is open, None for nothing."""
        return self._held.environment

    @property
    def task(self) -> Task | None:
        """The task of the epoch under way, or of the last one; None before the first."""
        return self._held.task

    @property
    def state(self) -> WorkerState:
        """What the last commit has stored beside the bins."""
        return self._held.env.state

    def note_breakdown(self, means: dict[str, float]) -> None:
        """Adds to the report of the epoch how long its records spent in each step, ms."""
        self._held.report.breakdown = means

    # -- steps --------------------------------------------------------------------------------------------------------

    def _blocked(self, pulls: Sequence[Pull]) -> set[int]:
        """Returns the bins that run nothing now.

        Those that the plan holds are held by the worker to which they are routed now; records that went to the old
        owner before are to be in the state when that is pulled. Between two epochs none is held: the driver, told of an
        empty queue, may route its bin away in the next one.
        """
        if not self.in_epoch:
            return self._missing
        held = self._held.now.order.written.plan.held_by(self._number)
        return (self.pulls.missing - {pull.bin for pull in pulls}) | held

    def _commit(self, given: CommitInput) -> Report:
        held = self._held
        if given.ends and held.env.ended_epoch == held.now.epoch:
            raise StateError(f"Worker {self._number} has ended epoch {held.now.epoch} before: it is to be run again.")
        held.env.task = held.now
        return run_commit(held.env, held.now, given, held.report, doubtful=held.doubtful)

    def _end(self, received: Sequence[pa.Table] | None) -> Answer:
        env, task = self._held.env, self._held.now
        if self._ended is None:
            self._find_end()
        elif env.ended_epoch != task.epoch:  # it was rebuilt, and its files do not have the end
            raise StateError(f"Worker {self._number} has lost the end of epoch {task.epoch}: it is to be run again.")
        if self._ended is None:
            whole = commit_end(env, task, self._held.report, self._blocked(()))
            self._ended = with_times(whole, env.state.counted), None
        report, cells = self._ended
        if cells is None:
            cells, report.negative = env.end_latencies()
            self._ended = report, cells
        follow_end(env, task, report, received)
        return Answer(report, cells, None if self._batch is None else self.earliest_timer())

    def _find_end(self) -> None:
        """Takes over the end of the epoch where it was committed before."""
        env, task = self._held.env, self._held.now
        if env.ended_epoch != task.epoch:
            return
        found = env.ended_report(task.epoch)
        if found is None:
            raise StateError(f"Worker {self._number} has ended epoch {task.epoch}, but has no report of it.")
        report, cells = found
        report.attempt, report.repeated, report.pid, report.host = self._attempt, True, os.getpid(), self._host
        if self._batch is None:  # else it is told with the epoch to come
            report.recovered = report.recovered or env.report.recovered
        report.ms = {**report.ms, **self._held.report.ms}
        report.done_us = report.done_us or time.time_ns() // 1000
        self._ended = report, cells
