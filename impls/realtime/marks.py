"""From which blobs on nothing comes to a worker by the routing before, and which old owners change nothing more."""

from collections.abc import Mapping

from impls.protocol.session import Final, Marks, Watermark


class Progress:
    """hear() what the driver says of one epoch; reached() and final say how far it is.

    Args:
        epoch: the epoch.
    """

    def __init__(self, epoch: int):
        self._epoch = epoch
        self._marks: dict[int, int] | None = None
        self._finals: set[int] = set()
        self._settled = self._rises = False
        self._risen: Watermark | None = None

    def hear(self, message: Marks | Final | Watermark) -> None:
        """Takes in marks, that a worker is final, or the watermark; those of another epoch are passed over."""
        if message.epoch != self._epoch:
            return
        if isinstance(message, Final):
            self._finals.add(message.worker)
        elif isinstance(message, Watermark):
            self._risen = message
        else:
            self._marks, self._settled, self._rises = dict(message.counts), message.settled, message.rises

    def watermark(self) -> int | None:
        """Returns, once, the time up to which timers are to run in the epoch; None for none, or before it is told."""
        risen = self._risen
        if risen is None:
            return None
        self._rises, self._risen = False, None
        return risen.watermark

    @property
    def rises(self) -> bool:
        """Whether the watermark of the epoch is still to be told."""
        return self._rises

    @property
    def final(self) -> set[int] | None:
        """Workers that are final, None for all."""
        return None if self._settled else self._finals

    def reached(self, applied: Mapping[int, int]) -> bool:
        """Returns whether nothing more comes by the routing before, when the first blobs `applied` are committed."""
        return self._marks is not None and all(applied.get(f, 0) >= n for f, n in self._marks.items())
