"""The changelog files that are kept, however many they are: an epoch's work is that of the files that come and go."""

from collections.abc import Iterable, Sequence

from impls.durability.schedule import Manifest


class KeptLog:
    """add() the files of each epoch, take_needless() with each manifest.

    Attributes:
        bytes: of all files.

    Args:
        files: (epoch, worker) and bytes of the files that are there, in any order.
    """

    def __init__(self, files: Iterable[tuple[tuple[int, int], int]] = ()):
        self.bytes = 0
        self._epochs: dict[int, dict[int, int]] = {}  # bytes by worker
        for (epoch, worker), size in files:
            self.add(epoch, worker, size)
        self._oldest = min(self._epochs, default=0)
        self._pinned: set[int] = set()  # older epochs whose files a reader keeps

    def add(self, epoch: int, worker: int, size: int) -> None:
        """Takes in a file; one that is there already, of an epoch that is run again, is replaced."""
        workers = self._epochs.setdefault(epoch, {})
        self.bytes += size - workers.get(worker, 0)
        workers[worker] = size

    def take_needless(self, written: Manifest, pinned: Sequence[range] = ()) -> list[tuple[int, int]]:
        """Returns (epoch, worker) of the files that recovery from the written manifest never reads, kept no longer.

        Those of epochs that are pinned are kept.
        """
        needed = int(written.base.min()) + 1
        old = self._pinned.union(epoch for epoch in range(self._oldest, needed) if epoch in self._epochs)
        self._pinned = {epoch for epoch in old if any(epoch in epochs for epochs in pinned)}
        gone = {epoch: self._epochs.pop(epoch) for epoch in sorted(old - self._pinned)}
        self._oldest = max(self._oldest, needed)
        self.bytes -= sum(sum(workers.values()) for workers in gone.values())
        return [(epoch, worker) for epoch, workers in gone.items() for worker in workers]
