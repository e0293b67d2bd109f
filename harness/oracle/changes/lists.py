"""The results that are no repeats, taken apart: what each says of its key's state, and the records that it lists."""

from collections import Counter
from dataclasses import dataclass, field
from struct import calcsize, unpack_from
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.oracle.bins import BinOf
from harness.oracle.changes.columns import ENTRY, HEADER, Listed
from harness.oracle.columns import OracleError

__all__ = ["Findings", "Lists", "accepted"]

_HEADER_BYTES = calcsize(HEADER)


@dataclass
class Findings:
    """Counts findings, and keeps the first and the last one of each class."""

    totals: Counter[str] = field(default_factory=Counter)
    examples: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)

    def add(self, kind: str, why: str, **where: Any) -> None:
        """Adds one; `where` are numbers."""
        self.totals[kind] += 1
        one = {"why": why, **{name: int(value) for name, value in where.items()}}
        self.examples.setdefault(kind, {"first": one})["last"] = one


@dataclass(frozen=True)
class Lists:
    """The results that are no repeats: keys in the order of their results; and the records that they list."""

    key: NDArray[np.int64]
    epoch: NDArray[np.int64]
    header: NDArray[np.int64]  # shape (n, 3)
    entries: NDArray[np.void]
    result: NDArray[np.int64]  # of each entry
    lengths: NDArray[np.int64]


def accepted(results: Listed, bin_of: BinOf, partitions: int, found: Findings) -> Lists:
    """Drops repeats, and finds results that are behind a later number, differ from what they repeat, or lie elsewhere.

    A number at or below the highest one before it, of the same worker in the same partition, is a repeat.
    """
    last: dict[tuple[int, int], tuple[int, int]] = {}
    seen: dict[tuple[int, int, int, int], tuple[int, bytes]] = {}
    rows = []
    columns = (results.worker, results.partition, results.epoch, results.index, results.key, results.value)
    for row, (worker, part, epoch, index, key, value) in enumerate(
        zip(*(column.tolist() for column in columns), strict=True)
    ):
        name = (worker, part, epoch, index)
        if (epoch, index) > last.get((worker, part), (-1, -1)):
            last[worker, part], seen[name] = (epoch, index), (key, value)
            rows.append(row)
        elif name not in seen:
            found.add("out_of_order", "behind a later number", epoch=epoch, key=key, worker=worker)
        elif seen[name] != (key, value):
            found.add("wrong", "differs from what it repeats", epoch=epoch, key=key, worker=worker)
    taken = results.take(np.array(rows, np.int64))
    home = bin_of(taken.key) * partitions // bin_of.bins
    for row in np.flatnonzero(home != taken.partition).tolist():
        found.add("wrong", "partition of another bin", epoch=taken.epoch[row], key=taken.key[row])
    return _opened(taken)


def _opened(taken: Listed) -> Lists:
    values = taken.value.tolist()
    wrong = [value for value in values if len(value) < _HEADER_BYTES or (len(value) - _HEADER_BYTES) % ENTRY.itemsize]
    if wrong:
        raise OracleError(f"{len(wrong)} results are not of the form of this suite, first {wrong[0]!r}.")
    lengths = np.array([(len(value) - _HEADER_BYTES) // ENTRY.itemsize for value in values], np.int64)
    header = np.array([unpack_from(HEADER, value) for value in values], np.int64).reshape(-1, 3)
    entries = np.frombuffer(b"".join(value[_HEADER_BYTES:] for value in values), ENTRY)
    result = np.repeat(np.arange(len(values)), lengths)
    return Lists(taken.key, taken.epoch, header, entries, result, lengths)
