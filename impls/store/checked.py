"""Records with the checksum of their key and value in front, as LMDB keeps none."""

import zlib

import lmdb

from impls.errors import CorruptStateError

__all__ = ["checked", "get_checked", "get_of_epoch", "open_record", "put_checked", "put_of_epoch"]


def put_checked(txn: lmdb.Transaction, key: bytes, value: bytes) -> None:
    """Writes a record with the checksum of its key and value."""
    txn.put(key, checked(key, value))


def checked(key: bytes, value: bytes) -> bytes:
    """Returns a record as `put_checked` writes it."""
    return zlib.crc32(value, zlib.crc32(key)).to_bytes(4, "little") + value


def get_checked(txn: lmdb.Transaction, key: bytes) -> bytes | None:
    """Returns a record that `put_checked` wrote, None for an absent one; raises CorruptStateError for a damaged one."""
    raw = txn.get(key)
    if raw is None:
        return None
    return open_record(key, bytes(raw))


def open_record(key: bytes, raw: bytes) -> bytes:
    """Returns the value of a record as `put_checked` wrote it; raises CorruptStateError when it is damaged."""
    if zlib.crc32(raw[4:], zlib.crc32(key)).to_bytes(4, "little") != raw[:4]:
        raise CorruptStateError("A record of the worker's state is damaged: its checksum does not match.")
    return raw[4:]


def put_of_epoch(txn: lmdb.Transaction, key: bytes, epoch: int, value: bytes) -> None:
    """Writes a record that every epoch replaces."""
    put_checked(txn, key, epoch.to_bytes(8, "little", signed=True) + value)


def get_of_epoch(txn: lmdb.Transaction, key: bytes, epoch: int) -> bytes | None:
    """Returns a record that `put_of_epoch` wrote in an epoch, None when it is absent or of another epoch.

    A damaged key beside it can hide the record, and the next epoch then writes a second one of the same key.
    """
    raw = get_checked(txn, key)
    return raw[8:] if raw is not None and int.from_bytes(raw[:8], "little", signed=True) == epoch else None
