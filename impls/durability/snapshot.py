"""Snapshots of bins: stored entries, blocks and queue at the end of an epoch, several bins of a worker in a file."""

from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter

import lmdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from impls.durability import frame as frames
from impls.durability.files import Files
from impls.durability.sealed import seal, unseal
from impls.errors import CorruptStateError
from impls.store import moving
from impls.store.bins import other_items, read_size, stored_items, verify_items, write_size
from impls.store.checked import open_record
from impls.store.moving import entry_rows
from impls.store.packs import pack_rows
from impls.store.pages import Leaves, Rows
from impls.store.records import from_bytes, to_bytes
from impls.store.tables import QUEUE, STATE, bin_range, iter_range

FOLDER = "snapshots"
FORMAT = 2  # 1 has other lengths, see `impls.durability.sealed`
_MAGIC = b"RSSN"


def snapshot_name(epoch: int, worker: int, generation: int) -> str:
    """Returns the name of the file with the bins that a worker snapshotted in an epoch.

    Drivers of different generations may ask for different bins of one epoch, so their files have different names.
    """
    return f"{FOLDER}/{epoch:010d}-{worker:05d}-{generation}"


@dataclass(frozen=True, slots=True)
class BinImage:
    """One bin as stored: number of entries and bytes of its state, and all stored items as Arrow IPC streams.

    `state` and `queue` are None where the worker holds none: state and queue of a bin under way are at two workers.
    """

    bin: int
    entries: int
    size: int
    state: bytes | None
    queue: bytes | None


def _items(txn: lmdb.Transaction, bin_: int, *, queue: bool) -> tuple[int, bytes]:
    items = list(iter_range(txn, *bin_range(QUEUE, bin_))) if queue else stored_items(txn, bin_)
    names, values = list(map(itemgetter(0), items)), list(map(itemgetter(1), items))
    if queue:
        for name, value in zip(names, values, strict=True):
            open_record(name, value)
    else:
        verify_items(names, values)
    return len(names), _stream(names, values)


def _items_of(txn: lmdb.Transaction, bin_: int, name_bytes: int, rows: Rows) -> tuple[int, bytes]:
    """Returns what `_items` does of a bin whose entries were read and checked."""
    names, values = _column(rows[:, :name_bytes]), _column(rows[:, name_bytes:])
    others = other_items(txn, bin_)
    if others:
        other_names, other_values = list(map(itemgetter(0), others)), list(map(itemgetter(1), others))
        verify_items(other_names, other_values)
        names = pa.concat_arrays([names, pa.array(other_names, names.type)])
        values = pa.concat_arrays([values, pa.array(other_values, values.type)])
    return len(names), to_bytes(pa.table({"name": names, "value": values}))


def _column(rows: Rows) -> pa.Array:
    """Returns rows of bytes as binary values."""
    number, width = rows.shape
    ends = np.arange(0, (number + 1) * width, width, dtype=np.int64)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(np.ascontiguousarray(rows))]
    return pa.Array.from_buffers(pa.large_binary(), number, buffers)


def _stream(names: Sequence[bytes], values: Sequence[bytes]) -> bytes:
    return to_bytes(
        pa.table({"name": pa.array(names, pa.large_binary()), "value": pa.array(values, pa.large_binary())})
    )


def map_of(files: Files) -> int:
    """Returns the size of a map that takes all that a checkpoint has, of all workers: addresses, and no memory."""
    return 2 * sum(size for folder in (frames.FOLDER, FOLDER) for _, size in files.names(folder))


def image_at_rest(bin_: int, names: Sequence[bytes], values: Sequence[bytes]) -> BinImage:
    """Returns the image of a bin with an empty queue, given its items as they are stored, in order of their names."""
    return BinImage(bin_, len(names), sum(map(len, values)), _stream(names, values), _stream([], []))


def image_of(txn: lmdb.Transaction, bin_: int, *, state: bool, queue: bool, leaves: Leaves | None = None) -> BinImage:
    """Returns a bin's image, read without buffers, and quickest with the pages that `txn` shows.

    Raises CorruptStateError when its state is damaged, which must never become a snapshot.
    """
    entries, size = read_size(txn, bin_)
    content = queued = None
    if state:
        rows = entry_rows(txn, bin_, entries, leaves)
        found, content = _items(txn, bin_, queue=False) if rows is None else _items_of(txn, bin_, *rows)
        if found != entries:
            raise CorruptStateError(f"Bin {bin_} holds {found} entries where {entries} are recorded.")
    if queue:
        _, queued = _items(txn, bin_, queue=True)
    return BinImage(bin_, entries, size, content, queued)


def encode(query: str, worker: int, epoch: int, images: list[BinImage]) -> bytes:
    """Returns the file of images."""
    bins = [[i.bin, i.entries, i.size, i.state is not None, i.queue is not None] for i in images]
    parts = [part or b"" for i in images for part in (i.state, i.queue)]
    return seal(_MAGIC, FORMAT, {"query": query, "worker": worker, "epoch": epoch, "bins": bins}, parts)


def decode(raw: bytes, path: str) -> tuple[str, dict[int, BinImage]]:
    """Reads what `encode` wrote: (query, images by bin); raises CorruptStateError that names the file."""
    head, parts = unseal(_MAGIC, FORMAT, raw, path)
    images = {}
    for n, (bin_, entries, size, has_state, has_queue) in enumerate(head["bins"]):
        state = bytes(parts[2 * n]) if has_state else None
        queue = bytes(parts[2 * n + 1]) if has_queue else None
        images[bin_] = BinImage(bin_, entries, size, state, queue)
    return head["query"], images


def install(txn: lmdb.Transaction, image: BinImage) -> None:
    """Writes an image's state into an environment that does not hold the bin, its entries in packs if they can be.

    Raises CorruptStateError when an entry that is packed does not match its checksum.
    """
    assert image.state is not None, "the manifest names the file that has the state"
    table = from_bytes(image.state)
    if image.entries >= moving.LEAST:
        rows, name_bytes = _rows(table)
        if len(rows):
            txn.cursor().putmulti(pack_rows(rows, name_bytes))
            table = table.slice(len(rows))
    _put(txn, table)
    write_size(txn, image.bin, image.entries, image.size)


def install_queue(txn: lmdb.Transaction, image: BinImage) -> None:
    """Writes an image's queue into an environment whose queue of the bin is empty."""
    assert image.queue is not None, "the manifest names the file that has the queue"
    _put(txn, from_bytes(image.queue))


def _put(txn: lmdb.Transaction, table: pa.Table) -> None:
    names, values = table.column("name").to_pylist(), table.column("value").to_pylist()
    txn.cursor().putmulti(zip(names, values, strict=True))


def _rows(table: pa.Table) -> tuple[NDArray[np.uint8], int]:
    """Returns the names and stored values of an image's entries, shape (n, bytes), and the bytes of a name.

    None are returned of entries that have several lengths, or are too long to be packed.
    """
    names, values = (table.column(name).combine_chunks().cast(pa.large_binary()) for name in ("name", "value"))
    columns = []
    entries = int(pc.sum(pc.starts_with(names, STATE)).as_py() or 0)
    for column in (names, values) if entries else ():
        _, places, data = column.buffers()
        ends = np.frombuffer(places, np.int64)[column.offset : column.offset + entries + 1]
        width = int(ends[1] - ends[0])
        if (np.diff(ends) != width).any() or width > moving.LARGEST:
            return np.empty((0, 0), np.uint8), 0
        columns.append(np.frombuffer(data, np.uint8)[ends[0] : ends[-1]].reshape(entries, width))
    return (np.hstack(columns), columns[0].shape[1]) if columns else (np.empty((0, 0), np.uint8), 0)
