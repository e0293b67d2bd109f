"""What the oracle of changes reads: results that list their records, the code of each version, and where it held."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from struct import calcsize, unpack_from
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.oracle.columns import BinOf, Numbered, OracleError

HEADER = "<Bqq"  # of `struct`: shape of the state, the key's records so far, those since the state has the shape
ENTRY = np.dtype([("partition", "<u4"), ("offset", "<u8"), ("label", "<u1")])


@dataclass(frozen=True, slots=True)
class VersionEffect:
    """What a version of the pipeline does to a record.

    Attributes:
        shape: of the operator's state, 1 or 2.
        label: what the map step writes into each record.
        sieve: a filter leaves out the records of odd offsets.
    """

    shape: int = 1
    label: int = 1
    sieve: bool = False


def leaves_out(code: VersionEffect, offset: int) -> bool:
    """Returns whether a version's filter leaves out the record of an offset."""
    return code.sieve and offset % 2 == 1


@dataclass(frozen=True, slots=True)
class Listed(Numbered):
    """Results that list their records: `value` is a HEADER and an ENTRY for each of them."""

    key: NDArray[np.int64]
    value: NDArray[np.object_]


@dataclass(frozen=True)
class Plans:
    """Which version each bin ran under.

    Attributes:
        codes: what each version does, by its number.
        required: epoch -> version of each bin, shape (bins,); empty where it is not known.
        ids: id of the change that each version from 1 on came with.
        real_time: what a worker does between two epochs has the number of the later one, and
            runs under the versions of the earlier one.
    """

    codes: Sequence[VersionEffect]
    required: Mapping[int, NDArray[np.int64]] = field(default_factory=dict)
    ids: Sequence[str] = ()
    real_time: bool = False

    def candidates(self, epochs: NDArray[np.int64], bins: NDArray[np.int64]) -> list[list[int]]:
        """Returns the versions under which each result of (epoch, bin) can have run, the earlier one first.

        Where no plan is known these are all.
        """
        versions = self.versions(epochs, bins)
        before = self.versions(epochs - 1, bins) if self.real_time else versions
        every = list(range(len(self.codes)))
        return [
            every if v < 0 else sorted({u if u >= 0 else v, v})
            for u, v in zip(before.tolist(), versions.tolist(), strict=True)
        ]

    def versions(self, epochs: NDArray[np.int64], bins: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns the version of each (epoch, bin), -1 where it is not known."""
        out = np.full(len(epochs), -1, np.int64)
        for epoch in np.unique(epochs).tolist():
            if epoch in self.required:
                rows = epochs == epoch
                out[rows] = self.required[epoch][bins[rows]]
        return out

    @property
    def eras(self) -> list[int]:
        """How often state had changed its shape, by version."""
        changed = [a.shape != b.shape for a, b in zip(self.codes, self.codes[1:], strict=False)]
        return [0, *(int(times) for times in np.cumsum(changed, dtype=np.int64))]


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
