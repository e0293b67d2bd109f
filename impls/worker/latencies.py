"""When a worker's records were due and their results arrived, kept with its commits until the next epoch begins."""

import time
from dataclasses import dataclass

import lmdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from impls.store.checked import checked, get_of_epoch, open_record, put_of_epoch
from impls.store.tables import OUTBOX, drop_range, iter_range
from impls.worker.cells import are_moved, make_cells

_NOW, _ENDED = OUTBOX + b"latencies", OUTBOX + b"cells"
_LATENCIES_END = _NOW + b"\xff"
_WHEN = np.dtype([("time", "<i8"), ("done", "<i8"), ("moved", "u1")])
_ON_THEIR_WAY = 0  # as `done` of records whose results are not known to have arrived


def _item(commit: int) -> bytes:
    """Returns the name of the item with the latencies of a commit of the epoch."""
    return _NOW + commit.to_bytes(4, "big")


@dataclass
class Latencies:
    """When the records of an epoch were due and their results arrived, from which its cells are made.

    Attributes:
        commits: of each commit whose results have arrived, dtype _WHEN: scheduled time, arrival, `moved`.
        sent: the same of the last commit, whose results are not known to have arrived.
        stored: the first commits that are stored as they are here, each as an item.
    """

    commits: list[NDArray[np.void]]
    sent: NDArray[np.void]
    stored: int = 0

    @classmethod
    def none(cls) -> "Latencies":
        """Returns those of an epoch that begins."""
        return cls([], np.empty(0, _WHEN))

    @classmethod
    def read(cls, txn: lmdb.Transaction) -> "Latencies":
        """Returns what `write` stored with the last commit, its records counted as of now: their results have come."""
        items = [(bytes(name), bytes(value)) for name, value in iter_range(txn, _item(0), _LATENCIES_END)]
        commits = [np.frombuffer(open_record(*item), _WHEN).copy() for item in items]
        for one in commits:
            one["done"][one["done"] == _ON_THEIR_WAY] = time.time_ns() // 1000
        return cls(commits, np.empty(0, _WHEN), max(0, len(commits) - 1))

    def add(self, records: pa.Table | None, moving: tuple[int, ...]) -> int:
        """Takes the records of a commit, whose results are to be sent; returns the bytes that are stored of them."""
        if records is None or not len(records) or records.column("time").null_count:
            self.sent = np.empty(0, _WHEN)
        else:
            self.sent = np.zeros(len(records), _WHEN)
            self.sent["time"] = records.column("time").to_numpy()
            self.sent["moved"] = are_moved(records, moving)
        return self.sent.nbytes

    def arrived(self, done_us: int) -> None:
        """Takes in when the results of the last commit have arrived."""
        self.sent["done"] = done_us
        self.stored = len(self.commits)
        self.commits.append(self.sent)
        self.sent = np.empty(0, _WHEN)

    def write(self, txn: lmdb.Transaction) -> None:
        """Stores with a commit what is not stored: its own, and when the results of the one before it arrived.

        Nobody looks for damage beside them, as they are figures alone: what a commit needs comes before them.
        """
        if not self.commits:
            drop_range(txn, _NOW, _LATENCIES_END)  # those of the epoch before
        for number, part in enumerate([*self.commits[self.stored :], self.sent], self.stored):
            name = _item(number)
            txn.put(name, checked(name, part.tobytes()))

    def cells(self) -> tuple[NDArray[np.void], int]:
        """Returns the cells, dtype CELL, and how many latencies were below 0."""
        when = np.concatenate([np.empty(0, _WHEN), *self.commits])
        return make_cells(when["time"], when["done"], when["moved"])


def put_cells(txn: lmdb.Transaction, epoch: int, cells: bytes) -> None:
    """Stores the cells of an epoch that has ended, with the first commit behind it, which takes its latencies away."""
    put_of_epoch(txn, _ENDED, epoch, cells)


def stored_cells(txn: lmdb.Transaction, epoch: int) -> bytes:
    """Returns what `put_cells` stored of an epoch, none if another one has ended since."""
    return get_of_epoch(txn, _ENDED, epoch) or b""
