"""The tables of an environment: a key begins with one byte that names its table.

Bins are two big-endian bytes, so a bin is one key range in each table.
"""

__all__ = [
    "DENSE",
    "DUE",
    "META",
    "OUTBOX",
    "QUEUE",
    "SIZE",
    "STATE",
    "STATE_TABLES",
    "bin_key",
    "bin_range",
]

META = b"\x00"
STATE = b"\x01"
QUEUE = b"\x02"
OUTBOX = b"\x03"
SIZE = b"\x04"
DENSE = b"\x05"
DUE = b"\x06"
STATE_TABLES = (STATE, DENSE, DUE)  # in key order


def bin_key(table: bytes, bin_: int) -> bytes:
    """Returns the prefix of a bin's keys in a table."""
    return table + bin_.to_bytes(2, "big")


def bin_range(table: bytes, bin_: int) -> tuple[bytes, bytes]:
    """Returns the half-open key range of a bin in a table."""
    return bin_key(table, bin_), bin_key(table, bin_ + 1)
