"""A worker's environment while its task lives: opened for a tick, committed turn by turn, each with its frame."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import lmdb

from impls.durability.files import Files
from impls.durability.frame import Frame, Segment
from impls.errors import StateError
from impls.protocol.report import Report, Written
from impls.realtime.merging import Latencies, again, counted, end_latencies, ended_cells, lasting, restored, settled
from impls.store.checked import get_of_epoch, put_of_epoch
from impls.store.environment import MAP_BYTES, store_path, write_meta
from impls.store.lock import holds
from impls.store.offsets import Offsets
from impls.store.queues import QueueIndex
from impls.store.records import Results, put_queued, queued_records, stored_queues, take_queues
from impls.store.tables import OUTBOX
from impls.worker.opening import open_worker
from impls.worker.parts import Opened, Untrusted
from impls.worker.query import Task
from impls.worker.turns import without_records
from impls.worker.turnstate import TurnState, last_frame_of, put_frame, read_turn, write_turn

_REPORT = OUTBOX + b"report"


class TurnEnvironment:
    """open() for a tick; begin() and commit() of turns; close().

    Attributes:
        state: what the last turn has committed beside the bins.
        offsets: the next offsets of the bins that are here.
        queues: what waits after the last turn.
        latencies: of the tick under way.
    """

    def __init__(
        self,
        task: Task,
        *,
        batch: int,
        map_bytes: int = MAP_BYTES,
        resumed: bool = False,
        untrusted: Untrusted | None = None,
    ):
        """Opens it; raises lmdb.MapFullError where the map cannot take the state that it is made with.

        Args:
            task: the worker's task.
            batch: Spark's batch whose records come.
            map_bytes: least size of the map.
            resumed: the task has had an environment before: what is known of the batch does not come again.
            untrusted: why it is to be rebuilt, None to trust what is there.
        """
        self.task, self.report = task, Report(task.worker)
        self.offsets = Offsets(task.spec.bins)
        self._opened: Opened = open_worker(task, map_bytes=map_bytes, untrusted=untrusted, report=self.report)
        self._told = ""  # as the last commit wrote it; the first writes it anew, as older versions had no record of it
        self._segment: Segment | None = None
        self._segment_tick = -1
        self._path = store_path(task.state_dir, task.worker)
        try:
            self.state = self._read(batch)
            self._catch_up()
            with self._opened.store.reading() as txn:
                self.latencies = Latencies.read(txn)
            self._begin_batch(batch, resumed=resumed)
            with self._opened.store.reading() as txn:
                self.queues = QueueIndex.of(stored_queues(txn))
        except BaseException:
            self.close()
            raise

    @property
    def ended_tick(self) -> int:
        """The last tick that the worker has ended."""
        return self._opened.meta.epoch

    @property
    def used_bytes(self) -> int:
        """Bytes of the environment's pages."""
        return self._opened.store.used_bytes()

    def close(self) -> None:
        """Closes environment and segment and lets go of the lock."""
        self._close_segment()
        self._opened.close()

    def _close_segment(self) -> None:
        if self._segment is not None:
            self._segment.close()
            self._segment = None

    def begin(self) -> lmdb.Transaction:
        """Begins a turn's transaction."""
        txn: lmdb.Transaction = self._opened.store.begin()
        return txn

    def begin_inner(self, txn: lmdb.Transaction) -> lmdb.Transaction | None:
        """Begins a transaction inside a turn's."""
        inner: lmdb.Transaction | None = self._opened.store.begin_inner(txn)
        return inner

    def reading(self, *, buffers: bool = True) -> AbstractContextManager[lmdb.Transaction]:
        """Opens a read transaction on the last turn."""
        found: AbstractContextManager[lmdb.Transaction] = self._opened.store.reading(buffers=buffers)
        return found

    def commit(
        self, txn: lmdb.Transaction, frame: Frame, results: Results, after: TurnState, *, cells: bytes = b""
    ) -> bytes:
        """Commits a turn with all that repeats its frame and results; returns the encoded frame.

        `cells` are the latencies of the tick, where the turn ends it.
        """
        told = after.report != self._told
        frame.turn = {
            "of": self.state.turn,
            "first": self.state.results,
            "after": (after if told else replace(after, report="")).to_json(),
        }
        frame.results = results.packed() if results.keys else b""
        raw = frame.encode()
        write_turn(txn, after, told=told)
        put_frame(txn, raw)
        if after.ended:
            end_latencies(txn, frame.epoch, cells)
        else:
            self.latencies.write(txn)
        meta = self._opened.meta
        if after.ended:
            meta = meta.at_epoch(frame.epoch, self.task.order.generation)
            write_meta(txn, meta)
            put_of_epoch(txn, _REPORT, frame.epoch, after.ended.encode())
        txn.commit()
        self._opened.meta = meta
        self.state, self._told = replace(after, ended=""), after.report
        if self.task.spec.files is not None:
            self._opened.store.extend_file()
        return raw

    def log(self, tick: int, raw: bytes) -> None:
        """Appends a turn's frame to the segment of its tick."""
        files = self.task.spec.files
        if files is None:
            return
        segment = self._segment_of(files, tick)
        self._check_ours()  # behind the opening: whoever takes over later makes the file anew, see `fence`
        segment.append(raw)

    def _segment_of(self, files: Files, tick: int) -> Segment:
        """Returns the segment of a tick, opened if it is not the one that is open."""
        if self._segment is None or self._segment_tick != tick:
            self._close_segment()
            self._segment, self._segment_tick = Segment(files, tick, self.task.worker), tick
        return self._segment

    def _check_ours(self) -> None:
        """Raises StateError when another task has set the environment aside: what this one has to say is outdated."""
        lock = self._opened.lock
        if lock is not None and not holds(lock, self._path):
            raise StateError(f"Another task has taken over the state in {self._path}: this one is outdated.")

    def send(self, frame: Frame, results: Results) -> None:
        """Sends a turn's results."""
        assert frame.turn is not None, "it is the frame of a turn"
        spec = self.task.spec
        if spec.files is not None:
            self._check_ours()
        spec.output.send(
            results, bins=spec.bins, worker=self.task.worker, generation=frame.generation, epoch=frame.epoch,
            first=int(frame.turn["first"]), commit=int(frame.turn["of"]),
        )  # fmt: skip

    def stored_report(self, tick: int) -> tuple[bytes | None, bytes]:
        """Returns report and latency cells with which the worker has ended a tick, None and b"" when it has not."""
        with self._opened.store.reading() as txn:
            raw, cells = get_of_epoch(txn, _REPORT, tick), ended_cells(txn, tick)
        if raw is None or not self.state.said:
            return raw, cells
        return counted(Report.from_json(raw), self.state.said).to_json(), cells

    def grow(self) -> None:
        """Opens the environment with a map of twice the size; raises CorruptStateError when it is damaged."""
        size = self._opened.store.map_bytes * 2
        self._opened.close()
        self._close_segment()  # an environment that is rebuilt meanwhile has its segments made anew, see `fence`
        self._opened = open_worker(self.task, map_bytes=size, untrusted=None, report=self.report)
        with self._opened.store.reading() as txn:
            self.offsets.load(txn)  # the turn that found it full may have changed them

    def _read(self, batch: int) -> TurnState:
        with self._opened.store.reading() as txn:
            self.offsets.load(txn)
            found = read_turn(txn)
        return found or TurnState(tick=self._opened.meta.epoch + 1, batch=batch)

    def _catch_up(self) -> None:
        """Repeats what may not have happened after the last commit: its frame in the changelog, its results."""
        with self._opened.store.reading() as txn:
            last = last_frame_of(txn)
        if last is None:
            return
        raw, frame = last
        if self.task.spec.files is not None:
            segment = self._segment_of(self.task.spec.files, frame.epoch)
            logged = segment.frames
            if not logged or logged[-1].turn != frame.turn:
                segment.append(raw)
                logged = [*logged, frame]
            if frame.epoch == self.state.tick:  # what an earlier task has changed in it, and could not report
                changed = sorted({bin_ for turn in logged for bin_ in turn.bins()})
                self.report.changelog = Written(changed, segment.size)
        if frame.results:
            self.send(frame, Results.unpacked(frame.results))

    def _begin_batch(self, batch: int, *, resumed: bool) -> None:
        """Notes where Spark's batch begins; what was queued of a batch that comes again is given up.

        It may end earlier than it failed, so that the next one brings what is known already.
        """
        with self._opened.store.reading() as txn:
            queues = stored_queues(txn)
        known = self.state.batch == batch
        if known and resumed:
            self._keep_queued(queues, self.state.number)
            return
        if not known:
            state, times = settled(self.state)
            state = replace(state, batch=batch, since=self.state.number)
            self.state = lasting(state, restored(state, self.task.worker), counted(Report(self.task.worker), times))
        # a tick has ended when all workers have ended it: what this one alone has ended comes again
        since = max(self.state.since, self.state.first_of(self.task.epoch))
        self._keep_queued(queues, since)
        doubled = {bin_: entries for bin_, entries in queues.items() if _number(entries[-1]) >= since}
        if doubled or (known and again(self.state) != self.state):
            self._give_up(doubled, since)

    def _keep_queued(self, queues: Mapping[int, Sequence[bytes]], since: int) -> None:
        """Has records left out when they come again that queues keep, each with the watermark of its turn.

        They follow on what the bin's owner has applied: it was final before the tick ended that queued them.
        """
        for entries in queues.values():
            for entry in entries:
                if _number(entry) < since:
                    self.offsets.keep(queued_records(entry))

    def _give_up(self, queues: Mapping[int, Sequence[bytes]], since: int) -> None:
        """Deletes from queues what comes again, in a turn of its own; merged partials do not come again and stay."""
        state, txn = again(self.state), self.begin()
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
            raw = self.commit(txn, frame, Results.none(), replace(state, turn=state.turn + 1))
        except BaseException:
            txn.abort()
            raise
        self.log(frame.epoch, raw)

    def frame(self, **changes: Any) -> Frame:
        """Returns the frame of the next turn with what it changes."""
        task, tick = self.task, self.state.tick
        fresh = task.worker in task.order.fresh and tick == task.epoch
        return Frame(task.spec.query, task.worker, tick, task.order.generation, fresh=fresh, **changes)


def _number(entry: bytes) -> int:
    return int.from_bytes(entry[:6], "big")
