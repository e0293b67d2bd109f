"""Checksummed files of a JSON head and parts: changelog frames and snapshots.

A file is a front, the length of the head (uint32), the head, and the parts whose lengths the head gives. The front is 4
bytes of magic, format (uint16), CRC-32 of what follows it (uint32) and the length of that (uint64).
"""

import struct
import zlib
from dataclasses import dataclass
from typing import Any

from impls.errors import ADVICE, CorruptStateError
from impls.protocol.jsontext import from_text, to_text

_FRONT = struct.Struct("<4sHIQ")


@dataclass(frozen=True, slots=True)
class Front:
    """What a file begins with.

    Attributes:
        format: of the file.
        check: CRC-32 of what follows.
        length: bytes that follow.
    """

    format: int
    check: int
    length: int

    @property
    def size(self) -> int:
        """Bytes of the front itself."""
        return _FRONT.size

    def to_bytes(self, magic: bytes) -> bytes:
        """Returns it as stored."""
        return _FRONT.pack(magic, self.format, self.check, self.length)

    def matches(self, body: bytes | memoryview) -> bool:
        """Returns whether this is what follows."""
        return len(body) == self.length and zlib.crc32(body) == self.check


def front_of(raw: bytes, at: int = 0) -> Front | None:
    """Returns the front that begins at a byte, None where the rest is too short for one."""
    return Front(*_FRONT.unpack_from(raw, at)[1:]) if len(raw) - at >= _FRONT.size else None


def seal(magic: bytes, version: int, head: dict[str, Any], parts: list[bytes]) -> bytes:
    """Returns a checksummed file of a JSON head and parts."""
    text = to_text({**head, "parts": [len(part) for part in parts]})
    body = b"".join([len(text).to_bytes(4, "little"), text, *parts])
    return Front(version, zlib.crc32(body), len(body)).to_bytes(magic) + body


def unseal(magic: bytes, version: int, raw: bytes, path: str) -> tuple[dict[str, Any], list[memoryview]]:
    """Returns head and parts of a file that `seal` made in `version`.

    Raises CorruptStateError that names the file when it is damaged, or of another version.
    """
    front = front_of(raw)
    if front is None or raw[:4] != magic:
        raise CorruptStateError(f"The file {path} is torn or not of this kind: {ADVICE}.")
    if front.format != version:
        raise CorruptStateError(f"The file {path} has format {front.format}; this version reads format {version}.")
    body = memoryview(raw)[front.size :]
    if not front.matches(body):
        raise CorruptStateError(f"The file {path} is torn or damaged (its checksum does not match): {ADVICE}.")
    at = 4 + int.from_bytes(body[:4], "little")
    head, parts = from_text(bytes(body[4:at])), []
    for size in head["parts"]:
        parts.append(body[at : at + size])
        at += size
    return head, parts
