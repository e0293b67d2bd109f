"""A native query's state as snapshots of bins: each task writes the bins of one file."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

import pyarrow as pa

from impls.durability import snapshot as snapshots
from impls.durability.files import Files
from impls.processor.names import time_of
from impls.store.entries import stored_names, stored_value, stored_values
from impls.store.tables import DUE, STATE, bin_key

__all__ = ["FILES", "GENERATION", "IMAGES_SCHEMA", "Target", "file_of", "write_images"]

FILES = 64  # of snapshots, each with neighbouring bins: a worker has one in memory when it restores its bins
GENERATION = 1  # of the driver that the files' names say: none has run yet
IMAGES_SCHEMA = "bin int, entries long, size long, written long"
_IMAGES = pa.schema([("bin", pa.int32()), *((name, pa.int64()) for name in ("entries", "size", "written"))])


@dataclass(frozen=True)
class Target:
    """Where snapshots go: the files of a query with `bins` bins, at the end of an epoch.

    Entries whose key begins with one of `timers` have a time behind it, at which the bin is to be looked at.
    """

    files: Files
    query: str
    epoch: int
    bins: int
    timers: tuple[bytes, ...] = ()


def file_of(bin_: int, bins: int) -> int:
    """Returns the number of the file with a bin, which takes the place of a worker's in the file's name."""
    return bin_ * min(FILES, bins) // bins


def write_images(target: Target, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Writes the snapshot of the bins of one file and yields (bin, entries, bytes of values, bytes of the file).

    A task that is repeated writes the same file again.

    Args:
        target: where to.
        batches: all entries of these bins: columns bin (int32), key and value (binary).
    """
    rows = [row for batch in batches for row in zip(*(batch.column(name).to_pylist() for name in _ENTRY), strict=True)]
    if not rows:
        return
    bins, keys, values = zip(*rows, strict=True)
    names = stored_names(bins, keys)
    items = sorted(zip(names, stored_values(names, values), strict=True))
    images = []
    for number, group in groupby(items, key=_bin_of):
        own = list(group)
        own += _earliest_timer(number, own, target.timers)
        images.append(snapshots.image_at_rest(number, list(map(itemgetter(0), own)), list(map(itemgetter(1), own))))
    file = file_of(images[0].bin, target.bins)
    raw = snapshots.encode(target.query, file, target.epoch, images)
    target.files.write(snapshots.snapshot_name(target.epoch, file, GENERATION), raw)
    written = [len(raw)] + [0] * (len(images) - 1)
    done = [(i.bin, i.entries, i.size, size) for i, size in zip(images, written, strict=True)]
    columns = [pa.array(column, kind) for column, kind in zip(zip(*done, strict=True), _IMAGES.types, strict=True)]
    yield pa.RecordBatch.from_arrays(columns, schema=_IMAGES)


_ENTRY = ("bin", "key", "value")


def _earliest_timer(
    bin_: int, items: list[tuple[bytes, bytes]], timers: tuple[bytes, ...]
) -> list[tuple[bytes, bytes]]:
    """Returns the note of a bin's earliest timer, see `BinState.set_earliest_timer`; none for a bin without one."""
    begin = len(bin_key(STATE, bin_))
    times = [time_of(name[begin + 1 :]) for name, _ in items if name.startswith(timers, begin)] if timers else []
    if not times:
        return []
    name = bin_key(DUE, bin_)
    return [(name, stored_value(name, min(times).to_bytes(8, "big", signed=True)))]


def _bin_of(item: tuple[bytes, bytes]) -> int:
    return int.from_bytes(item[0][1:3], "big")
