"""Entries read page by page, many in one step: LMDB's cursor makes three Python objects of each.

The pages are those of the commit that a read transaction shows, in the form of LMDB 0.9 (mdb.c: MDB_page, MDB_node,
MDB_meta; data version 1). What looks otherwise, or has entries of several lengths, is left to the cursor.
"""

import mmap
import os
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import lmdb
import numpy as np
from numpy.typing import NDArray

from impls.closing import Closing
from impls.store.tables import META, PACKS, STATE, bin_range

Rows = NDArray[np.uint8]

_PAGE = struct.Struct("<QHHHH")  # number, padding, flags, end of the pointers, begin of the nodes
_NODE = struct.Struct("<HHHH")  # bytes of the value or number of the child, lower and upper half; flags; bytes of a key
_META = struct.Struct("<II16x")  # magic, version
_DB = struct.Struct("<IHHQQQQQ")  # page size, flags, depth, branches, leaves, overflow pages, entries, root
_TXN = struct.Struct("<QQ")  # last page, transaction
_MAGIC, _VERSION = 0xBEEFC0DE, 1
_BRANCH, _LEAF = 1, 2
_FEW_PAGES = 128  # read in one step
_MANY_PAGES = 256  # that are worth threads
_NEAR_PAGES = 4  # between two that are read in one step
_READ_BYTES = 1 << 20
_THREADS = 4


class UnknownFormError(Exception):
    """Pages are not of the form that is read here."""


class Leaves(Closing):
    """The leaf pages of a commit; close() it, or use it in a `with` statement.

    Args:
        path: the environment's file.
        txn: a transaction that reads it, and is not ended before.

    Raises UnknownFormError when the file is not what the transaction reads: another one may be at its place by now.
    """

    def __init__(self, path: Path, txn: lmdb.Transaction):
        try:
            self._file = path.open("rb")
        except OSError as error:
            raise UnknownFormError(str(error)) from error
        try:
            self._map = mmap.mmap(self._file.fileno(), 0, prot=mmap.PROT_READ)
        except (OSError, ValueError) as error:
            self._file.close()
            raise UnknownFormError(str(error)) from error
        try:
            self._size, self._depth, self._root = self._tree(txn.id())
            self._check(bytes(txn.get(META) or b""))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Unmaps the file, or lets that happen when nothing refers to it any more: an exception under way may do."""
        self._file.close()
        with suppress(BufferError):
            self._map.close()

    def _tree(self, transaction: int) -> tuple[int, int, int]:
        """Returns (page size, depth, root) as of a commit: one of the two that the first two pages tell of."""
        size = _DB.unpack_from(self._map, _PAGE.size + _META.size)[0] if len(self._map) >= mmap.PAGESIZE else 0
        for page in range(2) if size and len(self._map) >= 2 * size else ():
            at = page * size + _PAGE.size
            db = _DB.unpack_from(self._map, at + _META.size + _DB.size)
            number = _TXN.unpack_from(self._map, at + _META.size + 2 * _DB.size)[1]
            if number == transaction and _META.unpack_from(self._map, at) == (_MAGIC, _VERSION):
                return size, db[2], db[7]
        raise UnknownFormError("its last commits are others")

    def _page(self, number: int, kind: int) -> tuple[int, list[int]]:
        """Returns a page's place in the file and those of its nodes."""
        at = number * self._size
        if at + self._size > len(self._map):
            raise UnknownFormError("it is too short")
        found, _, flags, end, _ = _PAGE.unpack_from(self._map, at)
        if (found, flags) != (number, kind) or not _PAGE.size <= end <= self._size:
            raise UnknownFormError(f"page {number} is of another kind")
        nodes = np.frombuffer(self._map, "<u2", (end - _PAGE.size) // 2, at + _PAGE.size)
        if not len(nodes) or nodes.max() > self._size - _NODE.size:
            raise UnknownFormError(f"page {number} is damaged")
        return at, (nodes.astype(np.int64) + at).tolist()

    def _key(self, node: int) -> bytes:
        begin = node + _NODE.size
        return self._map[begin : begin + _NODE.unpack_from(self._map, node)[3]]

    def _check(self, meta: bytes) -> None:
        """Raises UnknownFormError unless an environment's first item, its meta record, is the one given."""
        page = self._root
        for _ in range(self._depth - 1):
            page = self._child(self._page(page, _BRANCH)[1][0])
        node = self._page(page, _LEAF)[1][0]
        name, begin = self._key(node), node + _NODE.size
        value = self._map[begin + len(name) : begin + len(name) + _NODE.unpack_from(self._map, node)[0]]
        if (name, value) != (META, meta):
            raise UnknownFormError("it is another environment")

    def _child(self, node: int) -> int:
        low, middle, high, _ = _NODE.unpack_from(self._map, node)
        return int(low | middle << 16 | high << 32)

    def _pages(self, low: bytes, high: bytes) -> list[int]:
        """Returns the numbers of the leaf pages that may have names between two, `high` excluded."""
        pages = [self._root]
        for _ in range(self._depth - 1):
            below: list[int] = []
            for i, page in enumerate(pages):
                nodes = self._page(page, _BRANCH)[1]
                # the key of a page's first node is not stored: it is below all
                end = bisect_left(nodes, high, 1, key=self._key) if i == len(pages) - 1 else len(nodes)
                begin = bisect_right(nodes, low, 1, end, key=self._key) - 1 if i == 0 else 0
                below += map(self._child, nodes[begin:end])
            pages = below
        return pages

    def read_ahead(self, bin_: int) -> None:
        """Reads the pages of a large bin's entries and packs: asked for one by one, cold ones take 0.1 ms each.

        Several threads read them. `madvise(WILLNEED)` would skip each page for which no memory is free: most of them,
        where state is larger than memory. A page that is not read here is read when somebody asks for it.
        """
        with suppress(UnknownFormError, OSError):
            found = [page for table in (STATE, PACKS) for page in self._pages(*bin_range(table, bin_))]
            pages = np.unique(np.array(found, np.int64))
            if len(pages) >= _MANY_PAGES:
                runs = np.split(pages, np.flatnonzero(np.diff(pages) > _NEAR_PAGES) + 1)
                spans = [(int(run[0]) * self._size, (int(run[-1]) + 1) * self._size) for run in runs]
                with ThreadPoolExecutor(_THREADS) as pool:
                    list(pool.map(self._read, [spans[i::_THREADS] for i in range(_THREADS)]))

    def _read(self, spans: list[tuple[int, int]]) -> None:
        buffer = memoryview(bytearray(_READ_BYTES))
        for begin, end in spans:
            for at in range(begin, end, _READ_BYTES):
                os.preadv(self._file.fileno(), [buffer[: end - at]], at)

    def rows(self, table: bytes, bin_: int) -> Iterator[tuple[int, Rows]]:
        """Yields the entries of one table and bin: (bytes of a name, names and stored values), shape (n, bytes).

        Raises UnknownFormError when neighbours have names or values of different lengths, or are out of order.
        """
        low, high = bin_range(table, bin_)
        pages, last = self._pages(low, high), b""
        for i in range(0, len(pages), _FEW_PAGES):
            name_bytes, rows = self._rows(pages[i : i + _FEW_PAGES], low)
            if not len(rows):
                continue
            names = np.ascontiguousarray(rows[:, :name_bytes]).view(f"S{name_bytes}")[:, 0]
            if rows[0, :name_bytes].tobytes() <= last or not bool((names[1:] > names[:-1]).all()):
                raise UnknownFormError("names are out of order")
            last = rows[-1, :name_bytes].tobytes()
            yield name_bytes, rows

    def _rows(self, pages: list[int], prefix: bytes) -> tuple[int, Rows]:
        """Returns the entries with a prefix on leaf pages, as `rows` does."""
        flat, ends = self._copy(pages)
        number, size = (ends - _PAGE.size) // 2, self._size
        most = int(number.max())
        heads = flat[: len(pages) * size].reshape(-1, size)[:, _PAGE.size : _PAGE.size + 2 * most]
        nodes = heads.copy().view("<u2").astype(np.int64) + (np.arange(len(pages)) * size)[:, None]
        places = nodes[np.arange(most) < number[:, None]]
        if len(places) and places.max() > len(flat) - size:
            raise UnknownFormError("a page is damaged")
        own = _at(flat, places + _NODE.size, 4).view("<u4") & np.uint32(0xFFFFFF) == int.from_bytes(prefix, "little")
        if not own.all():
            places = places[own]
        if not len(places):
            return 0, np.empty((0, 0), np.uint8)
        forms = _at(flat, places, _NODE.size).view("<u8")
        low, high, flags, name_bytes = _NODE.unpack(forms[0].tobytes())
        width = name_bytes + (low | high << 16)
        if (forms != forms[0]).any() or flags or width > size // 2:
            raise UnknownFormError("entries are of several lengths")
        return name_bytes, _at(flat, places + _NODE.size, width).view(np.uint8).reshape(-1, width)

    def _copy(self, pages: list[int]) -> tuple[Rows, NDArray[np.int64]]:
        """Returns leaf pages one after the other, a page of zeros behind them, and where their pointers end."""
        size = self._size
        if not pages or (max(pages) + 1) * size > len(self._map):
            raise UnknownFormError("it is too short")
        flat = np.zeros((len(pages) + 1, size), np.uint8)
        flat[:-1] = np.ndarray((len(self._map) // size, size), np.uint8, self._map)[pages]
        heads = flat[:-1, : _PAGE.size].copy()
        ends = heads.view("<u2")[:, 6].astype(np.int64)
        if (
            (heads.view("<u8")[:, 0] != pages).any()
            or (heads.view("<u2")[:, 5] != _LEAF).any()
            or not _PAGE.size <= ends.min() <= ends.max() <= size
        ):
            raise UnknownFormError("a page is of another kind")
        return flat.reshape(-1), ends


@contextmanager
def leaves_of(folder: Path, txn: lmdb.Transaction) -> Iterator[Leaves | None]:
    """Yields the pages of an environment's commit that a transaction reads, None where only LMDB can read them."""
    try:
        leaves = Leaves(folder / "data.mdb", txn)
    except UnknownFormError:
        yield None
        return
    with leaves:
        yield leaves


def _at(flat: Rows, places: NDArray[np.int64], width: int) -> NDArray[np.void]:
    """Returns so many bytes from each place on."""
    every = np.ndarray((len(flat) - width + 1,), f"V{width}", flat, 0, (1,))
    return every[places]
