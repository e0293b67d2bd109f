"""Entries as stored: keyed ones, a name and a value with a CRC-32 of both; and dense blocks of 509 counts.

The name of a key that is too long for LMDB has a digest for it; then the key stands in front of the value.

What is done to many entries at once is one loop without calls of our own: with 20,000 keys an epoch a call costs more
than what it does.

The checksum of a dense block is a sum of the counts, each times its own odd weight, modulo 2^64: one changed bit always
changes it, it follows an addition without reading the block anew, and a block of zero bytes is not a valid one.
"""

import hashlib
import zlib
from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from impls.errors import CorruptStateError
from impls.protocol.arrays import MAX_BINS
from impls.store.tables import DENSE, STATE, bin_key

CHECK_BYTES = 4
_RESIDUE = 0x2144DF1C  # CRC-32 of anything with its own CRC-32 behind it, lowest byte first
_HASHED = 480  # bytes of the name of a key that is hashed, behind the prefix; LMDB keys end at 511 bytes
_KEY_MAX = _HASHED - 1  # of a key that is its own name: no such name is as long as one that is hashed
_DIGEST = 32
_LENGTH = 4  # bytes of the length of a key in front of a value
_PREFIXES = [bin_key(STATE, bin_) for bin_ in range(MAX_BINS)]
_Value = TypeVar("_Value", bytes, bytes | None)
_PREFIX = len(_PREFIXES[0])
_LONGEST = _PREFIX + _HASHED  # bytes of a name with a digest
_FEW = 32  # entries of one shape; below, checking them one by one is quicker
_MANY = 400  # entries of 15 bytes; below, a CRC by zlib for each is quicker than numpy over all of them
_WIDE = 48  # bytes of an entry, from which on that is quicker of any number


def _table() -> NDArray[np.uint32]:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(0xEDB88320), table >> 1).astype(np.uint32)
    return table


_CRC = _table()


def stored_name(prefix: bytes, key: bytes) -> bytes:
    """Returns the name of a key's entry behind its bin's prefix, another one for every key.

    Of a key that is too long for LMDB it is the beginning and a hash of the whole.
    """
    if len(key) > _KEY_MAX:
        key = key[: _HASHED - _DIGEST] + hashlib.blake2b(key, digest_size=_DIGEST).digest()
    return prefix + key


def stored_names(bins: Sequence[int], keys: Sequence[bytes]) -> tuple[list[bytes], bool]:
    """Returns (names of keys' entries, whether a key is too long to be its name)."""
    if max(map(len, keys), default=0) > _KEY_MAX:
        return [stored_name(_PREFIXES[bin_], key) for bin_, key in zip(bins, keys, strict=True)], True
    return [_PREFIXES[bin_] + key for bin_, key in zip(bins, keys, strict=True)], False


def in_front(key: bytes) -> bytes:
    """Returns what stands in front of a value whose name does not have the key."""
    return len(key).to_bytes(_LENGTH, "big") + key


def split(value: bytes) -> tuple[bytes, bytes]:
    """Returns (key, value) of a value with its key in front."""
    end = _LENGTH + int.from_bytes(value[:_LENGTH], "big")
    return value[_LENGTH:end], value[end:]


def with_keys(keys: Sequence[bytes], values: Sequence[_Value]) -> list[_Value]:
    """Returns values; in front of one whose key is too long to be its name stands the key."""
    return [
        value if value is None or len(key) <= _KEY_MAX else in_front(key) + value
        for key, value in zip(keys, values, strict=True)
    ]


def without_keys(keys: Sequence[bytes], values: Sequence[_Value]) -> list[_Value]:
    """Returns the values of which `with_keys` returns these."""
    return [
        value if value is None or len(key) <= _KEY_MAX else split(value)[1]
        for key, value in zip(keys, values, strict=True)
    ]


def stored_entry(bin_: int, key: bytes, value: bytes) -> tuple[bytes, bytes]:
    """Returns name and value of an entry as they are stored."""
    name = stored_name(_PREFIXES[bin_], key)
    return name, stored_value(name, *with_keys([key], [value]))


def open_entries(items: Sequence[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Returns (key, value) of entries, given as they are stored; raises CorruptStateError as `open_values` does."""
    names = [name for name, _ in items]
    values = open_values(names, [stored for _, stored in items])
    return [
        (name[_PREFIX:], value) if len(name) != _LONGEST else split(value)
        for name, value in zip(names, values, strict=True)
    ]


def stored_values(names: Sequence[bytes], values: Sequence[bytes]) -> list[bytes]:
    """Returns values as they are stored under their names, see `stored_value`."""
    crc = zlib.crc32
    return [
        value + crc(value, crc(name)).to_bytes(CHECK_BYTES, "little") for name, value in zip(names, values, strict=True)
    ]


def open_values(names: Sequence[bytes], stored: Sequence[bytes]) -> list[bytes]:
    """Returns the values of entries; raises CorruptStateError when a name or value is damaged, see `open_value`."""
    crc = zlib.crc32
    sums = [crc(value, crc(name)) for name, value in zip(names, stored, strict=True)]
    if sums.count(_RESIDUE) < len(sums):
        for name, value in zip(names, stored, strict=True):
            open_value(name, value)
    return [value[:-CHECK_BYTES] for value in stored]


def stored_value(name: bytes, value: bytes) -> bytes:
    """Returns a value as it is stored under a name."""
    return value + zlib.crc32(value, zlib.crc32(name)).to_bytes(CHECK_BYTES, "little")


def open_value(name: bytes, stored: bytes) -> bytes:
    """Returns the value of an entry; raises CorruptStateError when name or value are damaged."""
    value = stored[:-CHECK_BYTES]
    if stored[-CHECK_BYTES:] != zlib.crc32(value, zlib.crc32(name)).to_bytes(CHECK_BYTES, "little"):
        raise CorruptStateError(f"An entry of bin {int.from_bytes(name[1:3], 'big')} is damaged: wrong checksum.")
    return value


def verify_entries(names: Sequence[bytes], values: Sequence[bytes]) -> None:
    """Raises CorruptStateError when any entry is damaged; entries of equal lengths are checked together."""
    lengths = np.fromiter(map(len, names), np.int64, len(names)) << 32 | np.fromiter(map(len, values), np.int64)
    for shape in np.unique(lengths).tolist():
        same = bool((lengths == shape).all())
        members = range(len(names)) if same else np.flatnonzero(lengths == shape).tolist()
        if len(members) < _FEW or shape & 0xFFFFFFFF < CHECK_BYTES:
            for i in members:
                open_value(names[i], values[i])
            continue
        raw = b"".join([names[i] + values[i] for i in members])
        check_rows(np.frombuffer(raw, np.uint8).reshape(len(members), -1), shape >> 32)


def check_rows(rows: NDArray[np.uint8], name_bytes: int) -> None:
    """Raises CorruptStateError when an entry, given its name and stored value, is damaged; shape (n, bytes)."""
    for row in wrong_rows(rows)[:1].tolist():
        raw = rows[row].tobytes()
        open_value(raw[:name_bytes], raw[name_bytes:])


def wrong_rows(rows: NDArray[np.uint8]) -> NDArray[np.intp]:
    """Returns which rows, each an entry's name and stored value, shape (n, bytes), do not match their checksums."""
    if rows.shape[1] >= _WIDE or len(rows) < _MANY:
        return np.flatnonzero(unsound(rows))
    stored = rows[:, -CHECK_BYTES:].copy().view("<u4")[:, 0]
    return np.flatnonzero(_crc_of_rows(rows[:, :-CHECK_BYTES]) != stored)


def unsound(rows: NDArray[np.uint8]) -> list[bool]:
    """Returns of each row, an entry's name and stored value, whether it fails its checksum; shape (n, bytes)."""
    raw, width, crc = rows.tobytes(), rows.shape[1], zlib.crc32
    return [crc(raw[at : at + width]) != _RESIDUE for at in range(0, len(raw), width)]


def _crc_of_rows(rows: NDArray[np.uint8]) -> NDArray[np.uint32]:
    crc = np.full(len(rows), 0xFFFFFFFF, np.uint32)
    for column in np.ascontiguousarray(rows.T):
        crc = _CRC[(crc ^ column) & np.uint32(0xFF)] ^ (crc >> np.uint32(8))
    return ~crc


class Changes:
    """What an epoch writes, in stored form and order: the content of its changelog frame.

    Attributes:
        names, values: of keyed entries; a value of None deletes.
        codes, counts: lists of int64 arrays, dense slots and their counts.
    """

    def __init__(self) -> None:
        self.names: list[bytes] = []
        self.values: list[bytes | None] = []
        self.codes: list[NDArray[np.int64]] = []
        self.counts: list[NDArray[np.int64]] = []


SLOTS = 509
_WORDS = SLOTS + 1  # 4,080 bytes and LMDB's 16-byte header fill one page exactly
BLOCK_BYTES = _WORDS * 8
_SALT = np.uint64(0x9E3779B97F4A7C15)
_WEIGHTS = (np.arange(1, _WORDS, dtype=np.uint64) * _SALT) | np.uint64(1)
_SLOT_BITS = 10
_BLOCK_BITS = 30  # of a block within its bin
_BLOCK_MASK = (1 << _BLOCK_BITS) - 1
_NUMBER_MASK = (1 << 16 + _BLOCK_BITS) - 1  # two bytes of bin

Words = NDArray[np.uint64]


def codes_of(bins: NDArray[np.int32], slots: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns one int64 per (bin, slot): bin << 40 | block << 10 | place in the block, in the order of stored keys."""
    block = slots // SLOTS
    code: NDArray[np.int64] = (bins.astype(np.int64) << 40) | (block << _SLOT_BITS) | (slots - block * SLOTS)
    return code


def place(codes: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.intp], NDArray[np.int64]]:
    """Returns (distinct (bin, block) numbers m, row of each code in them, place of each code in its block)."""
    blocks, row = np.unique(codes >> _SLOT_BITS, return_inverse=True)
    return blocks, row, codes & ((1 << _SLOT_BITS) - 1)


def block_names(numbers: NDArray[np.int64]) -> list[bytes]:
    """Returns the stored names of blocks with the numbers that `place` gives."""
    return [bin_key(DENSE, n >> _BLOCK_BITS) + (n & _BLOCK_MASK).to_bytes(4, "big") for n in numbers.tolist()]


def block_numbers(names: Sequence[bytes]) -> NDArray[np.int64]:
    """Returns the numbers of blocks, shape (n,); raises CorruptStateError for a name that is not that of its number.

    A name has two bits more than its number, and a block's checksum knows the number only.
    """
    numbers = [int.from_bytes(name[1:3], "big") << _BLOCK_BITS | int.from_bytes(name[3:], "big") for name in names]
    found = np.array([number & _NUMBER_MASK for number in numbers], np.int64)
    if block_names(found) != list(names):
        raise CorruptStateError("The name of a block of counts is damaged.")
    return found


def _salts(numbers: NDArray[np.int64]) -> Words:
    return (numbers.astype(np.uint64) + np.uint64(1)) * _SALT


def create_blocks(numbers: NDArray[np.int64]) -> bytes:
    """Returns blocks of zero counts with the numbers that `place` gives."""
    words = np.zeros((len(numbers), _WORDS), "<u8")
    words[:, SLOTS] = _salts(numbers)
    return words.tobytes()


def open_blocks(raw: bytes, numbers: NDArray[np.int64], where: str) -> Words:
    """Returns stored blocks as writable words, shape (m, 510).

    Raises CorruptStateError when a checksum is wrong, or is that of a block of another number.
    """
    words = np.frombuffer(raw, "<u8").reshape(-1, _WORDS).copy()
    if (words[:, :SLOTS] @ _WEIGHTS + _salts(numbers) != words[:, SLOTS]).any():
        raise CorruptStateError(f"A block of counts in {where} is damaged: its checksum does not match.")
    return words


def write_counts(words: Words, row: NDArray[np.intp], at: NDArray[np.int64], counts: NDArray[np.int64]) -> None:
    """Sets counts, shape (n,), at distinct places of opened blocks, and their checksums."""
    new = counts.astype(np.uint64)
    change = (new - words[row, at]) * _WEIGHTS[at]
    words[row, at] = new
    np.add.at(words[:, SLOTS], row, change)
