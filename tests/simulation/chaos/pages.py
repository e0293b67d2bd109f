"""Where in an LMDB file the items are: keys and values of every leaf page, those of earlier commits too.

Layout of a page and a node as in LMDB 0.9 (lmdb's mdb.c, `MDB_page` and `MDB_node`), little-endian.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

_PAGE = struct.Struct("<QHHHH")  # number, pad, flags, lower, upper
_NODE = struct.Struct("<HHHH")  # size of the value (low, high), flags, size of the key
_LEAF, _KINDS = 0x02, 0x0F
_BIG = 0x01


@dataclass(frozen=True)
class Node:
    """Where an item's key and value are in the file."""

    key_at: int
    key_bytes: int
    value_at: int
    value_bytes: int

    def key(self, raw: bytes | bytearray) -> bytes:
        """Returns the key."""
        return bytes(raw[self.key_at : self.key_at + self.key_bytes])

    def value(self, raw: bytes | bytearray) -> bytes:
        """Returns the value."""
        return bytes(raw[self.value_at : self.value_at + self.value_bytes])


def leaf_nodes(raw: bytes | bytearray, page_bytes: int) -> Iterator[Node]:
    """Yields the nodes of every leaf page; pages that only look like one, within a long value, are passed over."""
    for number in range(2, len(raw) // page_bytes):  # the first two are LMDB's own
        start = number * page_bytes
        found, _, flags, lower, upper = _PAGE.unpack_from(raw, start)
        if found == number and flags & _KINDS == _LEAF and _PAGE.size <= lower <= upper <= page_bytes:
            for at in range(start + _PAGE.size, start + lower, 2):
                yield _node(raw, start + int.from_bytes(raw[at : at + 2], "little"), page_bytes)


def _node(raw: bytes | bytearray, at: int, page_bytes: int) -> Node:
    low, high, flags, key_bytes = _NODE.unpack_from(raw, at)
    key_at = at + _NODE.size
    value_at = key_at + key_bytes
    if flags & _BIG:  # the node holds the number of the value's first page
        value_at = int.from_bytes(raw[value_at : value_at + 8], "little") * page_bytes + _PAGE.size
    return Node(key_at, key_bytes, value_at, low | high << 16)
