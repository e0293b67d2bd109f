"""A worker's environment while it is open: committed again and again, each commit with the record that repeats it."""

from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import lmdb

from impls.durability.frame import Frame
from impls.errors import StateError
from impls.protocol.report import Report, Written
from impls.store.checked import get_of_epoch, put_of_epoch
from impls.store.environment import MAP_BYTES, read_meta, store_path, write_meta
from impls.store.lock import holds
from impls.store.numbers import Numbers
from impls.store.offsets import Applied, Offsets
from impls.store.queues import QueueIndex
from impls.store.records import Results, stored_queues
from impls.worker.changelog import Changelog
from impls.worker.latencies import Latencies, put_cells, stored_cells
from impls.worker.opening import open_worker
from impls.worker.parts import Opened, Untrusted
from impls.worker.query import Task
from impls.worker.refill import WHOLE_REPORT
from impls.worker.reports import with_times
from impls.worker.state import WorkerState, last_record, put_record, read_state, write_state


class Environment:
    """begin() and commit() again and again, log() and send() behind each commit; close() at the end.

    Attributes:
        task: the worker's task in the epoch under way, or that of the last one.
        state: what the last commit has stored beside the bins.
        offsets: the last rows that the bins here have applied, None where the input does not repeat itself.
        applied: all that is known of what the bins here have applied.
        queues: what waits behind the last commit.
        latencies: of the epoch under way.
        report: what opening it has done.
    """

    def __init__(self, task: Task, *, map_bytes: int = MAP_BYTES, untrusted: Untrusted | None = None):
        """Opens it; raises lmdb.MapFullError where the map cannot take the state that it is made with.

        Args:
            task: the worker's task.
            map_bytes: least size of the map.
            untrusted: why it is to be rebuilt, None to trust what is there.
        """
        self.task, self.report = task, Report(task.worker)
        self.offsets = Offsets(task.spec.bins) if task.spec.repeats else None
        self.applied: list[Applied] = [] if self.offsets is None else [self.offsets]
        self.applied += [Numbers()] if task.spec.linked else []
        self._opened: Opened = open_worker(task, map_bytes=map_bytes, untrusted=untrusted, report=self.report)
        files = task.spec.files
        self._changelog = None if files is None else Changelog(files, task.worker, appends=not task.single)
        self._logged = Written()  # of the last commit's epoch, where it was repeated
        self._path = store_path(task.state_dir, task.worker)
        try:
            with self.reading() as txn:
                for known in self.applied:
                    known.load(txn)
                self.state = read_state(txn) or WorkerState(epoch=self._opened.meta.epoch + 1)
                self.queues = QueueIndex.of(stored_queues(txn))
            self._stored_report = self.state.report
            self._repeat_last()
            self._read_latencies()
        except BaseException:
            self.close()
            raise

    def _read_latencies(self) -> None:
        """Reads those of the epoch under way, and the cells of the one that has ended, whose last results have come.

        Nobody asks for cells of an epoch that ended before the task's.
        """
        self.latencies, self._ended_cells = Latencies.none(), b""
        if not self.state.commits and self.ended_epoch < self.task.epoch:
            return
        with self.reading() as txn:
            latencies, cells = Latencies.read(txn), stored_cells(txn, self.ended_epoch)
        if self.state.commits:
            self.latencies, self._ended_cells = latencies, cells
        else:  # no commit has begun another epoch, and deleted these
            self._ended_cells = latencies.cells()[0].tobytes()

    @property
    def ended_epoch(self) -> int:
        """The last epoch that the worker has ended."""
        return self._opened.meta.epoch

    @property
    def used_bytes(self) -> int:
        """Bytes of the environment's pages."""
        return self._opened.store.used_bytes()

    @property
    def map_bytes(self) -> int:
        """Size of the map."""
        return self._opened.store.map_bytes

    def close(self) -> None:
        """Closes environment and segment and lets go of the lock."""
        if self._changelog is not None:
            self._changelog.close()
        self._opened.close()

    def begin(self) -> lmdb.Transaction:
        """Begins the transaction of a commit."""
        txn: lmdb.Transaction = self._opened.store.begin()
        return txn

    def begin_inner(self, txn: lmdb.Transaction) -> lmdb.Transaction | None:
        """Begins a transaction inside that of a commit; None where the store has no such."""
        inner: lmdb.Transaction | None = self._opened.store.begin_inner(txn)
        return inner

    def reading(self, *, buffers: bool = True) -> AbstractContextManager[lmdb.Transaction]:
        """Opens a read transaction on the last commit."""
        reading: AbstractContextManager[lmdb.Transaction] = self._opened.store.reading(buffers=buffers)
        return reading

    def commit(
        self, txn: lmdb.Transaction, frame: Frame, results: Results, after: WorkerState, *, report: bytes = b""
    ) -> bytes:
        """Commits with all that repeats frame and results; returns the encoded frame.

        `report` is the worker's whole report of the epoch, where the commit ends it.
        """
        reports, stored = after.report != self._stored_report, after.to_json()
        if not reports:
            stored.pop("report", None)
        frame.commit = {"of": self.state.commits, "first": self.state.results, "after": stored}
        frame.results = results.packed() if results.keys else b""
        frame.report = report
        record = frame.encode()
        write_state(txn, stored, after.report if reports else None)
        put_record(txn, record)
        if not self.state.commits and not report:
            put_cells(txn, self.ended_epoch, self._ended_cells)
        self.latencies.write(txn)
        meta = self._opened.meta
        if report:
            meta = meta.at_epoch(frame.epoch, self.task.order.generation)
            write_meta(txn, meta)
            put_of_epoch(txn, WHOLE_REPORT, frame.epoch, report)
        txn.commit()
        self._opened.meta = meta
        self.state, self._stored_report = after, after.report
        if self.task.spec.shared is None:  # whoever reads beside the worker takes a short file for a truncated one
            self._opened.store.extend_file()
        return record

    def end_latencies(self) -> tuple[bytes, int]:
        """Returns the cells of the epoch that has ended, and how many of its latencies were below 0."""
        cells, negative = self.latencies.cells()
        self._ended_cells, self.latencies = cells.tobytes(), Latencies.none()
        return self._ended_cells, negative

    def log(self, epoch: int, record: bytes) -> None:
        """Writes a commit's frame into the changelog."""
        if self._changelog is not None:
            self._changelog.open(epoch)
            self._check_ours()
            self._changelog.write(epoch, record)

    def _check_ours(self) -> None:
        """Raises StateError when another task has taken over the environment: what this one has to say is outdated."""
        lock = self._opened.lock
        if lock is not None:
            if not holds(lock, self._path):
                raise StateError(f"Another task has taken over the state in {self._path}: this one is outdated.")
            return
        with self.reading() as txn:
            meta = read_meta(txn)
        if meta is None or meta.epoch != self.ended_epoch:
            raise StateError(f"Worker {self.task.worker} was overtaken in epoch {self.task.epoch}: it is outdated.")

    def send(self, frame: Frame, results: Results) -> None:
        """Sends a commit's results."""
        assert frame.commit is not None, "it is the frame of a commit"
        spec = self.task.spec
        if spec.files is not None or spec.shared is not None:
            self._check_ours()
        spec.output.send(
            results, bins=spec.bins, worker=self.task.worker, generation=frame.generation, epoch=frame.epoch,
            first=int(frame.commit["first"]), commit=int(frame.commit["of"]),
        )  # fmt: skip

    def ended_report(self, epoch: int) -> tuple[Report, bytes] | None:
        """Returns report and latency cells with which the worker has ended an epoch, None when it has not."""
        with self.reading() as txn:
            raw = get_of_epoch(txn, WHOLE_REPORT, epoch)
        if raw is None:
            return None
        report = with_times(Report.from_json(raw), self.state.counted)
        if report.changelog.bins and not report.changelog.bytes:
            report.changelog = replace(self._logged, bins=report.changelog.bins)
        return report, self._ended_cells

    def grow(self) -> None:
        """Opens the environment with a map of twice the size; raises CorruptStateError when it is damaged."""
        size = self.map_bytes * 2
        self._opened.close()
        if self._changelog is not None:
            self._changelog.close()  # an environment that is rebuilt meanwhile has its segments made anew, see `fence`
        self._opened = open_worker(self.task, map_bytes=size, untrusted=None, report=self.report)
        if self.applied:
            with self.reading() as txn:
                for known in self.applied:
                    known.load(txn)  # the commit that found it full may have changed them

    def _repeat_last(self) -> None:
        """Repeats what may not have happened behind the last commit: its frame in the changelog, its results.

        A commit of an epoch before has been followed by both, but a driver that has just started looks for the frame.
        """
        is_now = self.state.commits > 0 or self.ended_epoch == self.task.epoch
        if not (is_now or self.task.order.check_frame):
            return
        with self.reading() as txn:
            last = last_record(txn)
        if last is None:
            return
        record, frame = last
        if self._changelog is not None:
            self._logged = self._changelog.again(record, frame)
            if frame.epoch == self.state.epoch:  # what an earlier task has changed in it, and could not report
                self.report.changelog = self._logged
        if is_now and frame.results:
            self.send(frame, Results.unpacked(frame.results))

    def frame(self, **changes: Any) -> Frame:
        """Returns the frame of the next commit with what it changes."""
        task, epoch = self.task, self.state.epoch
        fresh = task.worker in task.order.fresh and epoch == task.epoch
        return Frame(task.spec.query, task.worker, epoch, task.order.written.generation, fresh=fresh, **changes)
