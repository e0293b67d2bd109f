"""All entries of a bin as rows of bytes: read from its pages and packs, checked and put in order many at once."""

import lmdb
import numpy as np

from impls.store.entries import check_rows
from impls.store.moving import LARGEST, LEAST
from impls.store.packs import check_pack, packed_rows
from impls.store.pages import Leaves, Rows, UnknownFormError
from impls.store.tables import PACKS, STATE, bin_range, iter_range

__all__ = ["entry_rows"]


def entry_rows(view: lmdb.Transaction, bin_: int, entries: int, leaves: Leaves | None) -> tuple[int, Rows] | None:
    """Returns (bytes of a name, names and stored values of a bin's entries in key order, shape (n, bytes)).

    None is returned where they have several lengths, are long or few, or where only LMDB can read them.

    Args:
        view: a transaction that reads the environment without buffers.
        bin_: the bin.
        entries: how many it has.
        leaves: the pages that `view` shows, None where they are not known.

    Raises CorruptStateError when an entry or a pack does not match its checksum.
    """
    if leaves is None or entries < LEAST:
        return None
    packs = list(iter_range(view, *bin_range(PACKS, bin_)))
    for name, stored in packs:
        check_pack(name, stored)
    try:
        plain = list(leaves.rows(STATE, bin_))
    except UnknownFormError:
        return None
    parts = [*plain, *packed_rows(packs)]
    if len({(name_bytes, rows.shape[1]) for name_bytes, rows in parts}) != 1 or parts[0][1].shape[1] > LARGEST:
        return None
    name_bytes, found = parts[0][0], np.concatenate([rows for _, rows in parts])
    check_rows(found, name_bytes)
    return name_bytes, found if not packs else _in_order(found, name_bytes)


def _in_order(rows: Rows, name_bytes: int) -> Rows:
    names = np.ascontiguousarray(rows[:, :name_bytes]).view(f"S{name_bytes}")[:, 0]
    return rows[np.argsort(names, kind="stable")]
