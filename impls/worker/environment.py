"""A worker's environment while it is open: committed again and again, each commit with the record that repeats it."""

import contextlib
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import lmdb

from impls.durability.files import Files
from impls.durability.frame import Frame, Segment, frame_name, frames_of
from impls.errors import CorruptStateError, StateError
from impls.protocol.report import Report, Written
from impls.store.checked import get_of_epoch, put_of_epoch
from impls.store.environment import MAP_BYTES, read_meta, store_path, write_meta
from impls.store.lock import holds
from impls.store.offsets import Offsets
from impls.store.queues import QueueIndex
from impls.store.records import Results, put_queued, queued_records, stored_queues, take_queues
from impls.worker.inputs import without_records
from impls.worker.latencies import Latencies, put_cells, stored_cells
from impls.worker.opening import open_worker
from impls.worker.parts import Opened, Untrusted
from impls.worker.query import Task
from impls.worker.refill import WHOLE_REPORT
from impls.worker.reports import forget_times, keep_report, kept_report, settle_times, with_times
from impls.worker.state import WorkerState, last_record, put_record, read_state, write_state


class Environment:
    """begin() and commit() again and again, log() and send() behind each commit; close() at the end.

    Attributes:
        task: the worker's task in the epoch under way, or that of the last one.
        state: what the last commit has stored beside the bins.
        offsets: the next offsets of the bins that are here, None where the input does not repeat itself.
        queues: what waits behind the last commit.
        latencies: of the epoch under way.
        report: what opening it has done.
    """

    def __init__(
        self,
        task: Task,
        *,
        batch: int | None = None,
        map_bytes: int = MAP_BYTES,
        resumed: bool = False,
        untrusted: Untrusted | None = None,
    ):
        """Opens it; raises lmdb.MapFullError where the map cannot take the state that it is made with.

        Args:
            task: the worker's task.
            batch: Spark's batch whose records come, None where a batch is an epoch.
            map_bytes: least size of the map.
            resumed: the task has had an environment before: what is known of the batch does not come again.
            untrusted: why it is to be rebuilt, None to trust what is there.
        """
        self.task, self.report = task, Report(task.worker)
        self.offsets = Offsets(task.spec.bins) if task.spec.repeats else None
        self._opened: Opened = open_worker(task, map_bytes=map_bytes, untrusted=untrusted, report=self.report)
        self._appends = batch is not None  # else the one commit of an epoch is its segment, the same of every attempt
        self._segment: Segment | None = None
        self._segment_epoch, self._repeated_bytes = -1, 0
        self._path = store_path(task.state_dir, task.worker)
        try:
            with self.reading() as txn:
                if self.offsets is not None:
                    self.offsets.load(txn)
                self.state = read_state(txn) or WorkerState(epoch=self._opened.meta.epoch + 1)
                self.queues = QueueIndex.of(stored_queues(txn))
            self._stored_report = self.state.report
            self._repeat_last()
            self._read_latencies()
            if batch is not None:
                self._begin_batch(batch, resumed=resumed)
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
        self._close_segment()
        self._opened.close()

    def _close_segment(self) -> None:
        if self._segment is not None:
            self._segment.close()
            self._segment = None

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
        reports = after.report != self._stored_report
        frame.commit = {
            "of": self.state.commits,
            "first": self.state.results,
            "after": (after if reports else replace(after, report="")).to_json(),
        }
        frame.results = results.packed() if results.keys else b""
        frame.report = report
        record = frame.encode()
        write_state(txn, after, reports=reports)
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
        if self.task.spec.files is not None:
            self._opened.store.extend_file()
        return record

    def end_latencies(self) -> tuple[bytes, int]:
        """Returns the cells of the epoch that has ended, and how many of its latencies were below 0."""
        cells, negative = self.latencies.cells()
        self._ended_cells, self.latencies = cells.tobytes(), Latencies.none()
        return self._ended_cells, negative

    def log(self, epoch: int, record: bytes) -> None:
        """Writes a commit's frame into the segment of its epoch."""
        files = self.task.spec.files
        if files is None:
            return
        if not self._appends:
            self._check_ours()
            files.write(frame_name(epoch, self.task.worker), record)
            return
        segment = self._segment_of(files, epoch)
        self._check_ours()  # behind the opening: whoever takes over later makes the file anew, see `fence`
        segment.append(record)

    def _segment_of(self, files: Files, epoch: int) -> Segment:
        """Returns the segment of an epoch, opened if it is not the one that is open."""
        if self._segment is None or self._segment_epoch != epoch:
            self._close_segment()
            self._segment, self._segment_epoch = Segment(files, epoch, self.task.worker), epoch
        return self._segment

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
            report.changelog = replace(report.changelog, bytes=self._repeated_bytes)
        return report, self._ended_cells

    def grow(self) -> None:
        """Opens the environment with a map of twice the size; raises CorruptStateError when it is damaged."""
        size = self.map_bytes * 2
        self._opened.close()
        self._close_segment()  # an environment that is rebuilt meanwhile has its segments made anew, see `fence`
        self._opened = open_worker(self.task, map_bytes=size, untrusted=None, report=self.report)
        if self.offsets is not None:
            with self.reading() as txn:
                self.offsets.load(txn)  # the commit that found it full may have changed them

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
        self._repeated_bytes = len(record)
        if self.task.spec.files is not None:
            self._log_again(self.task.spec.files, record, frame)
        if is_now and frame.results:
            self.send(frame, Results.unpacked(frame.results))

    def _log_again(self, files: Files, record: bytes, frame: Frame) -> None:
        if not self._appends:
            self._write_again(files, record, frame)
            return
        segment = self._segment_of(files, frame.epoch)
        logged = segment.frames
        if not logged or logged[-1].commit != frame.commit:
            segment.append(record)
            logged = [*logged, frame]
        if frame.epoch == self.state.epoch:  # what an earlier task has changed in it, and could not report
            changed = sorted({bin_ for one in logged for bin_ in one.bins()})
            self.report.changelog = Written(changed, segment.size)

    def _write_again(self, files: Files, record: bytes, frame: Frame) -> None:
        """Writes a segment of one frame again when it is torn or gone."""
        name = frame_name(frame.epoch, self.task.worker)
        with contextlib.suppress(CorruptStateError):
            if (raw := files.read(name)) is not None and frames_of(raw, name)[0]:
                return
        files.write(name, record)

    def _begin_batch(self, batch: int, *, resumed: bool) -> None:
        """Notes where Spark's batch begins; what was queued of a batch that comes again is given up.

        It may end earlier than it failed, so that the next one brings what is known already.
        """
        with self.reading() as txn:
            queues = stored_queues(txn)
        known = self.state.batch == batch
        if known and resumed:
            self._keep_queued(queues, self.state.number)
            return
        if not known:
            state, times = settle_times(self.state)
            state = replace(state, batch=batch, since=self.state.number)
            worker = self.task.worker
            self.state = keep_report(state, kept_report(state, worker), with_times(Report(worker), times))
        # an epoch has ended when all workers have ended it: what this one alone has ended comes again
        since = max(self.state.since, self.state.first_of(self.task.epoch))
        self._keep_queued(queues, since)
        doubled = {bin_: entries for bin_, entries in queues.items() if _number(entries[-1]) >= since}
        if doubled or (known and forget_times(self.state) != self.state):
            self._give_up(doubled, since)

    def _keep_queued(self, queues: Mapping[int, Sequence[bytes]], since: int) -> None:
        """Has records left out when they come again that queues keep, each with the watermark of its commit.

        They follow on what the bin's owner has applied: it was final before the epoch ended that queued them.
        """
        assert self.offsets is not None, "a batch that may come again has bins that keep their offsets"
        for entries in queues.values():
            for entry in entries:
                if _number(entry) < since:
                    self.offsets.keep(queued_records(entry))

    def _give_up(self, queues: Mapping[int, Sequence[bytes]], since: int) -> None:
        """Deletes from queues what comes again, in a commit of its own; merged partials do not come again and stay."""
        state, txn = forget_times(self.state), self.begin()
        operations: list[tuple[int, bytes | None]] = []
        try:
            for bin_, entries in queues.items():
                kept = [e if _number(e) < since else without_records(e) for e in entries]
                take_queues(txn, [bin_])
                operations.append((bin_, None))
                for entry in filter(None, kept):
                    put_queued(txn, bin_, entry)
                    operations.append((bin_, entry))
            frame = self.frame(queue=operations)
            record = self.commit(txn, frame, Results.none(), replace(state, commits=state.commits + 1))
        except BaseException:
            txn.abort()
            raise
        self.queues = self.queues.after(operations)
        self.log(frame.epoch, record)

    def frame(self, **changes: Any) -> Frame:
        """Returns the frame of the next commit with what it changes."""
        task, epoch = self.task, self.state.epoch
        fresh = task.worker in task.order.fresh and epoch == task.epoch
        return Frame(task.spec.query, task.worker, epoch, task.order.written.generation, fresh=fresh, **changes)


def _number(entry: bytes) -> int:
    return int.from_bytes(entry[:6], "big")
