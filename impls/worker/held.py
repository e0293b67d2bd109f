"""A worker's environment while an epoch is run on it: opened, made larger or rebuilt, and the step done again."""

from collections.abc import Callable
from typing import TypeVar

import lmdb
import numpy as np

from impls.closing import closed_on_error
from impls.errors import StateError
from impls.protocol.report import Report
from impls.store.bins import read_size
from impls.store.environment import DAMAGE, MAP_BYTES
from impls.worker.batches import begin_batch
from impls.worker.environment import Environment
from impls.worker.parts import Cause, Untrusted, free_space
from impls.worker.query import Task
from impls.worker.refused import Again
from impls.worker.reports import merged_report, resumed_report
from impls.worker.versions import without

_REBUILT_MOST = 4  # damage may come with each of some pulls, or in what was just restored
_DOUBTFUL = (Cause.DAMAGED, Cause.DEADLY)
_T = TypeVar("_T")


class Held:
    """begin() an epoch, steadily() do what it asks for; close() at the end.

    Attributes:
        environment: what is open, None for nothing.
        task: in the epoch under way, or the last one; None before the first.
        report: of the epoch under way, or to come.
        doubtful: damage may have come with a pulled bin in this epoch, so that its source is not to be read.

    Args:
        worker: the worker's number.
        batch: Spark's batch whose records come, where one may come again; None where a batch is an epoch.
        untrusted: why the environment is to be rebuilt, None to trust what is there.
    """

    def __init__(self, worker: int, *, batch: int | None, untrusted: Untrusted | None):
        self._worker, self._batch, self._untrusted = worker, batch, untrusted
        self.environment: Environment | None = None
        self.task: Task | None = None
        self.report = Report(worker)
        self.doubtful = False
        self._map_bytes = MAP_BYTES
        self._resumed = False  # an environment has been opened
        self._rebuilt = 0  # for damage, since a commit

    @property
    def env(self) -> Environment:
        """What is open."""
        assert self.environment is not None, "begin() comes first"
        return self.environment

    @property
    def now(self) -> Task:
        """The task of the epoch under way, or of the last one."""
        assert self.task is not None, "begin() comes first"
        return self.task

    def begin(self, task: Task) -> None:
        """Opens the environment for an epoch, also anew when the worker was not in the last ones."""
        self.task, self.doubtful = task, False
        self.steadily(self._open)

    def close(self) -> None:
        """Closes the environment."""
        if self.environment is not None:
            self.environment.close()
            self.environment = None

    def committed(self) -> None:
        """Takes in that a commit has gone well: damage that comes later is another one."""
        self._rebuilt = 0

    def steadily(self, step: Callable[[], _T]) -> _T:
        """Does a step again as long as something that stops it can be mended.

        Raises StateError when the stored state cannot be read or written, or nothing can be left out.
        """
        while True:
            try:
                return step()
            except lmdb.MapFullError:
                self._grow()
            except DAMAGE as error:
                self._rebuild(error)
            except Again as error:
                self.task = without(self.now, error)
            except lmdb.Error as error:
                folder = self.now.state_dir
                where = f"{folder}: {error} ({free_space(folder)})"
                raise StateError(f"Worker {self._worker} cannot write its state in {where}.") from error

    def _open(self) -> None:
        task = self.now
        if self.environment is not None and self.environment.ended_epoch not in {task.epoch - 1, task.epoch}:
            self.close()
        if self.environment is None:
            self.doubtful = self.doubtful or (self._untrusted is not None and self._untrusted.cause in _DOUBTFUL)
            self.environment = self._opened()
            self.report = resumed_report(self.env.state, self.env.report)
            self.doubtful = self.doubtful or any(cause.value in self.report.recovered for cause in _DOUBTFUL)
            if task.order.first:
                self._report_created()
        self.env.task = task

    def _opened(self) -> Environment:
        found = Environment(self.now, map_bytes=self._map_bytes, untrusted=self._untrusted)
        if self._batch is not None:
            with closed_on_error(found):
                begin_batch(found, self._batch, resumed=self._resumed)
        self._resumed, self._untrusted, self._map_bytes = True, None, MAP_BYTES
        return found

    def _report_created(self) -> None:
        """Reports what the bins have that the first epoch creates, also where an earlier attempt has made them."""
        mine = np.flatnonzero(self.now.order.written.plan.routing == self._worker).tolist()
        with self.env.reading() as txn:
            self.report.sizes = (mine, [read_size(txn, bin_)[1] for bin_ in mine])

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
        if self.now.spec.files is None or self._rebuilt > _REBUILT_MOST:
            raise StateError(f"Worker {self._worker} cannot use its state in {self.now.state_dir}: {error}") from error
        before, was_open = self.report, self.environment is not None
        ended = was_open and self.env.ended_epoch == self.now.epoch
        self.close()
        self._untrusted = Untrusted(Cause.DAMAGED, str(error))
        if was_open:
            self.steadily(self._open)
            if ended or self.env.ended_epoch != self.now.epoch:  # else the report is that of the epoch to come
                self.report = merged_report(before, self.env.report)
