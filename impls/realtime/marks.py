"""From which blobs on nothing comes to a worker by the routing before, and which old owners change nothing more."""

from collections.abc import Mapping

from impls.protocol.session import Final, Marks


class Progress:
    """hear() what the driver says of one epoch; reached() and final say how far it is.

    Args:
        epoch: the epoch.
    """

    def __init__(self, epoch: int):
        self._epoch = epoch
        self._marks: dict[int, int] | None = None
        self._finals: set[int] = set()
        self._settled = False

    def hear(self, message: Marks | Final) -> None:
        """Takes in marks, or that a worker is final; those of another epoch are passed over."""
        if message.epoch != self._epoch:
            return
        if isinstance(message, Final):
            self._finals.add(message.worker)
        else:
            self._marks, self._settled = dict(message.counts), message.settled

    @property
    def final(self) -> set[int] | None:
        """Workers that are final, None for all."""
        return None if self._settled else self._finals

    def reached(self, applied: Mapping[int, int]) -> bool:
        """Returns whether nothing more comes by the routing before, when the first blobs `applied` are committed."""
        return self._marks is not None and all(applied.get(f, 0) >= n for f, n in self._marks.items())
