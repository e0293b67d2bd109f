"""What the oracle reads, as columns."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from typing import Any, get_args

import numpy as np
import pyarrow as pa
import xxhash
from numpy.typing import NDArray


class OracleError(Exception):
    """The oracle cannot check the run; the message says what is missing, and the verdict is `unknown`."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Columns of equal length, one array of shape (n,) per field."""

    def __len__(self) -> int:
        return len(getattr(self, fields(self)[0].name))

    def table(self) -> pa.Table:
        """Returns the columns as an Arrow table, without a copy."""
        return pa.table({field.name: getattr(self, field.name) for field in fields(self)})

    def take(self, rows: NDArray[Any]) -> Any:
        """Returns the same columns with the rows that an index or mask array names, in its order."""
        return type(self)(**{field.name: getattr(self, field.name)[rows] for field in fields(self)})

    @classmethod
    def dtypes(cls) -> dict[str, type[np.generic]]:
        """Returns the type of the elements of each column, as its annotation has it."""
        return {field.name: get_args(get_args(field.type)[1])[0] for field in fields(cls)}


@dataclass(frozen=True, slots=True)
class Placed(Columns):
    """What a topic holds, in (partition, offset) order."""

    partition: NDArray[np.int32]
    offset: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Numbered(Placed):
    """Raw results, repeats included, with the numbers that their headers have.

    `index` counts a worker's results of an epoch, `commit` its commits in it, of which micro-batches have one.
    """

    worker: NDArray[np.int32]
    generation: NDArray[np.int64]
    epoch: NDArray[np.int64]
    index: NDArray[np.int64]
    commit: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Records(Placed):
    """Input records; `scheduled_us` is microseconds since 1970."""

    key: NDArray[np.int64]
    scheduled_us: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class RawResults(Numbered):
    """Results of key-count."""

    key: NDArray[np.int64]
    count: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Ranges(Columns):
    """Which offsets `begin` <= offset < `end` of an input partition a committed epoch absorbed."""

    epoch: NDArray[np.int64]
    partition: NDArray[np.int32]
    begin: NDArray[np.int64]
    end: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class MovedBins(Columns):
    """Bins that changed their owner at the start of an epoch, and the id of their migration (empty: none)."""

    epoch: NDArray[np.int64]
    bin: NDArray[np.int64]
    migration: NDArray[np.str_]

    @classmethod
    def of(cls, rows: list[tuple[int, int, str]]) -> "MovedBins":
        """Returns moves from (epoch, bin, migration) rows."""
        epochs, bins, migrations = zip(*rows, strict=True) if rows else ((), (), ())
        return cls(np.array(epochs, np.int64), np.array(bins, np.int64), np.array(migrations, np.str_))


@dataclass(frozen=True, slots=True)
class NextOffsets(Columns):
    """What bins have stored at their owners: below `next` all records of the bin in a partition are applied."""

    bin: NDArray[np.int64]
    partition: NDArray[np.int32]
    next: NDArray[np.int64]
    worker: NDArray[np.int32]

    @classmethod
    def of(cls, rows: list[tuple[int, int, int, int]]) -> "NextOffsets":
        """Returns next offsets from (bin, partition, next, worker) rows."""
        bins, partitions, nexts, workers = np.array(rows, np.int64).reshape(-1, 4).T
        return cls(bins, partitions.astype(np.int32), nexts, workers.astype(np.int32))


@dataclass(frozen=True, slots=True)
class Waits(Columns):
    """Bins with queued records at the end of an epoch; what arrived for them is applied in the epoch `release`."""

    epoch: NDArray[np.int64]
    bin: NDArray[np.int64]
    release: NDArray[np.int64]

    @classmethod
    def of(cls, rows: Iterable[tuple[int, int]]) -> "Waits":
        """Returns waits from (epoch, bin) rows: a queue is released in the first epoch that does not list its bin."""
        waiting = set(rows)
        release: dict[tuple[int, int], int] = {}
        for epoch, bin_ in sorted(waiting, reverse=True):
            release[epoch, bin_] = release.get((epoch + 1, bin_), epoch + 1)
        columns = [(epoch, bin_, at) for (epoch, bin_), at in release.items()]
        epochs, bins, ats = zip(*columns, strict=True) if columns else ((), (), ())
        return cls(np.array(epochs, np.int64), np.array(bins, np.int64), np.array(ats, np.int64))


_SEED = 42


@dataclass(frozen=True)
class BinOf:
    """The bins of keys, int64 arrays of shape (n,) in and out; `bins` is their number."""

    bins: int
    function: Callable[[NDArray[np.int64]], NDArray[np.int64]]

    def __call__(self, key: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns the bin of each key."""
        return self.function(key)


def dense_bins(keys: int, bins: int) -> BinOf:
    """Returns the bin function of dense key-count: `bins` contiguous ranges of the keys 0..keys-1."""
    per_bin = -(-keys // bins)
    return BinOf(bins, lambda key: key // per_bin)


def hash_bins(bins: int) -> BinOf:
    """Returns the bin function of hash-count: the top bits of Spark's xxhash64 of a bigint.

    That is xxhash64, seed 42, of its 8 little-endian bytes (the keys of result messages are big-endian).
    """
    shift = 64 - (bins.bit_length() - 1)

    def bin_of(key: NDArray[np.int64]) -> NDArray[np.int64]:
        digest = xxhash.xxh64_intdigest
        names = key.astype("<i8").view("V8").tolist()
        return np.fromiter((digest(name, _SEED) >> shift for name in names), np.int64, len(key))

    return BinOf(bins, bin_of)
