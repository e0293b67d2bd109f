"""Entries of a bin as they move or are snapshotted: packs and rows, many at once."""

from operator import itemgetter
from typing import Any

import lmdb
import numpy as np
from numpy.typing import NDArray

from impls.store.entries import check_rows
from impls.store.packs import check_pack, pack_rows, packed_rows
from impls.store.pages import Leaves, Rows, UnknownFormError
from impls.store.tables import PACKS, STATE, bin_range, chunks, iter_range

LEAST = 512  # entries of a bin that is packed: fewer come as quickly by themselves
LARGEST = 500  # bytes of an entry, name included, that is packed: larger ones gain nothing
_PREFIX = 3  # table and bin

_Moved = tuple[Any, Any]


def moving_packs(
    view: lmdb.Transaction, bin_: int, entries: int, leaves: Leaves | None = None
) -> tuple[list[_Moved], bool]:
    """Returns a bin's packs at its new owner, in key order, and whether all its entries are in them.

    Args:
        view: a transaction that reads the environment without buffers.
        bin_: the bin.
        entries: how many it has.
        leaves: the pages that `view` shows; without them nothing is packed that is not.

    Raises CorruptStateError when a pack, or an entry that is packed here, does not match its checksum.
    """
    pages = leaves if entries >= LEAST else None
    if pages is not None:
        pages.read_ahead(bin_)
    packs = [pack for chunk in chunks(view, *bin_range(PACKS, bin_)) for pack in chunk]
    for name, stored in packs:
        check_pack(name, stored)
    if pages is None:
        return packs, False
    new = _packed(pages, bin_, [name for name, _ in packs])
    if new is None:
        return packs, False
    return sorted([*packs, *new], key=itemgetter(0)) if new and packs else new or packs, True


def _packed(leaves: Leaves, bin_: int, packs: list[bytes]) -> list[_Moved] | None:
    """Returns a bin's entries in packs, none of which reaches over one of those that there are; None if that fails."""
    new: list[_Moved] = []
    try:
        for name_bytes, rows in leaves.rows(STATE, bin_):
            if rows.shape[1] > LARGEST:
                return None
            new += pack_rows(rows, name_bytes, _cuts(rows, name_bytes, packs))
    except UnknownFormError:
        return None
    return new


def _cuts(rows: Rows, name_bytes: int, packs: list[bytes]) -> NDArray[np.intp]:
    """Returns the rows that are the first behind a pack of these names, ascending."""
    size = name_bytes - _PREFIX
    if not packs or not size:
        return np.empty(0, np.intp)
    keys = np.ascontiguousarray(rows[:, _PREFIX:name_bytes]).view(f"S{size}")[:, 0]
    ends = [name[_PREFIX:] for name in packs]
    short = np.searchsorted(keys, np.array([end for end in ends if len(end) <= size], f"S{size}"))
    long = np.searchsorted(keys, np.array([end[:size] for end in ends if len(end) > size], f"S{size}"), "right")
    return np.union1d(short, long)


def entry_rows(view: lmdb.Transaction, bin_: int, entries: int, leaves: Leaves | None) -> tuple[int, Rows] | None:
    """Returns (bytes of a name, names and stored values of a bin's entries in key order, shape (n, bytes)).

    None is returned where they have several lengths, are few, or where only LMDB can read them.

    Args:
        view: a transaction that reads the environment without buffers.
        bin_: the bin.
        entries: how many it has.
        leaves: the pages that `view` shows, None where they are not known.

    Raises CorruptStateError when an entry or a pack does not match its checksum.
    """
    if leaves is None or entries < LEAST:
        return None
    leaves.read_ahead(bin_)
    packs = list(iter_range(view, *bin_range(PACKS, bin_)))
    for name, stored in packs:
        check_pack(name, stored)
    try:
        plain = list(leaves.rows(STATE, bin_))
    except UnknownFormError:
        return None
    parts = [*plain, *packed_rows(packs)]
    if len({(name_bytes, rows.shape[1]) for name_bytes, rows in parts}) != 1:
        return None
    name_bytes, found = parts[0][0], np.concatenate([rows for _, rows in parts])
    check_rows(found, name_bytes)
    return name_bytes, found if not packs else _in_order(found, name_bytes)


def _in_order(rows: Rows, name_bytes: int) -> Rows:
    names = np.ascontiguousarray(rows[:, :name_bytes]).view(f"S{name_bytes}")[:, 0]
    return rows[np.argsort(names, kind="stable")]
