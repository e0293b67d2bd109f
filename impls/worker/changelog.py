"""A worker's changelog: the frames of its commits, in a file for each epoch."""

import contextlib

from impls.durability.files import Files
from impls.durability.frame import Frame, Segment, frame_name, frames_of
from impls.errors import CorruptStateError
from impls.protocol.report import Written


class Changelog:
    """write() behind each commit, again() for one that may not be there; close() at the end.

    In real time a frame is appended to its epoch's file. The one frame of a micro-batch is written whole, to any kind
    of file system, and every attempt writes the same.

    Args:
        files: the query's durable files.
        worker: the worker's number.
        appends: an epoch may have several commits.
    """

    def __init__(self, files: Files, worker: int, *, appends: bool):
        self._files, self._worker, self._appends = files, worker, appends
        self._segment: Segment | None = None
        self._epoch = -1

    def close(self) -> None:
        """Closes what is open."""
        if self._segment is not None:
            self._segment.close()
            self._segment = None

    def open(self, epoch: int) -> None:
        """Opens an epoch's file, where frames are appended; the caller then looks whether the worker is still its own.

        Whoever takes the worker over after that makes the file anew (`impls.durability.frame.fence`), so that what is
        written to the open one is in no changelog.
        """
        if self._appends:
            self._segment_of(epoch)

    def write(self, epoch: int, record: bytes) -> None:
        """Writes a commit's frame; raises StateError when it cannot."""
        if self._appends:
            self._segment_of(epoch).append(record)
        else:
            self._files.write(frame_name(epoch, self._worker), record)

    def again(self, record: bytes, frame: Frame) -> Written:
        """Writes the last commit's frame if it is not there; returns what its epoch's file has."""
        if not self._appends:
            self._write_again(record, frame)
            return Written(frame.bins(), *sizes_of(frame, record))
        segment = self._segment_of(frame.epoch)
        logged = segment.frames
        if not logged or logged[-1].commit != frame.commit:
            segment.append(record)
            logged = [*logged, frame]
        results = sum(len(one.results) + len(one.report) for one in logged)
        return Written(sorted({bin_ for one in logged for bin_ in one.bins()}), segment.size - results, results)

    def _write_again(self, record: bytes, frame: Frame) -> None:
        name = frame_name(frame.epoch, self._worker)
        with contextlib.suppress(CorruptStateError):
            if (raw := self._files.read(name)) is not None and frames_of(raw, name)[0]:
                return
        self._files.write(name, record)

    def _segment_of(self, epoch: int) -> Segment:
        """Returns the segment of an epoch, opened if it is not the one that is open."""
        if self._segment is None or self._epoch != epoch:
            self.close()
            self._segment, self._epoch = Segment(self._files, epoch, self._worker), epoch
        return self._segment


def sizes_of(frame: Frame, record: bytes) -> tuple[int, int]:
    """Returns the bytes of an encoded frame: of the changes, and of results and report."""
    besides = len(frame.results) + len(frame.report)
    return len(record) - besides, besides
