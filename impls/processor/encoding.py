"""State of a StatefulProcessor as entries of bins: what is stored for a value, a list, a map, a timer.

| entry | name (`impls.processor.encoding`) | value |
|---|---|---|
| value | VALUE, variable, key | row |
| list | LIST, variable, key | indexes of the first item and behind the last, 6 bytes each; with a time to live 8 more |
| its items | ITEM, variable, key, index | row |
| map's field | MAP, variable, key, key of the field | row |
| timer | TIMER, time, key | - |
| timer of a key | TIMERS, key, time | - |
| expiry | EXPIRY, time, name of a value, list or field | - |

Keys are encoded by `impls.processor.keys`, rows by `impls.processor.rows`. With a time to live a value, item or field
begins with the time at which it expires (8 bytes), and a value, field and list also says under which time its expiry
stands: one entry has one expiry, at or before the time at which it expires. Times are ms, and sort as bytes.

A name is a family (1 byte), the variable's name with its length (1 byte), the grouping key, and what the family adds:
the index of a list's item (6 bytes), the key of a map. Keys of more than 150 bytes are named by their digest; where the
key itself is wanted back, the value begins with it.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pyspark.sql.types import StructType

from impls.errors import UsageError
from impls.processor.keys import KeyCodec
from impls.processor.rows import StateRowCodec
from impls.store.hashing import hash_bytes

TIMER, VALUE, LIST, MAP, EXPIRY, TIMERS, ITEM = (bytes([family]) for family in range(7))
AFTER_TIMERS, AFTER_EXPIRIES = VALUE, TIMERS  # above all timers, above all expiries
_KEY_MAX, _LABEL_MAX = 150, 100
_BIAS = 1 << 63
_DIGEST, _DIGESTED = 32, 0xFFFF


def label_part(variable: str) -> bytes:
    """Returns the part of a name that says whose entry it is; raises UsageError for a name of more than 100 bytes."""
    label = variable.encode()
    if len(label) > _LABEL_MAX:
        raise UsageError(f"The name of the state variable {variable[:20]}... is longer than {_LABEL_MAX} bytes.")
    return bytes([len(label)]) + label


def key_part(key: bytes) -> bytes:
    """Returns the part of a name for a grouping key; no other key's begins with it."""
    if len(key) <= _KEY_MAX:
        return len(key).to_bytes(2, "big") + key
    return _DIGESTED.to_bytes(2, "big") + _digest(key)


def field_part(key: bytes) -> tuple[bytes, bytes]:
    """Returns the part of a name for the key of a map's field, and what the value begins with."""
    if len(key) <= _KEY_MAX:
        return b"\0" + key, b""
    return b"\1" + _digest(key), len(key).to_bytes(4, "big") + key


def field_of(part: bytes, value: bytes) -> tuple[bytes, bytes]:
    """Returns (key of the field, the rest of the value) of the part of a name and a value."""
    if part[:1] == b"\0":
        return part[1:], value
    end = 4 + int.from_bytes(value[:4], "big")
    return value[4:end], value[end:]


def rest_of(name: bytes) -> bytes:
    """Returns what stands behind the grouping key in the name of an entry of a variable."""
    at = 2 + name[1]
    size = int.from_bytes(name[at : at + 2], "big")
    return name[at + 2 + (_DIGEST if size == _DIGESTED else size) :]


def item_name(head: bytes, index: int) -> bytes:
    """Returns the name of a list's item; `head` is that of the list."""
    return ITEM + head[1:] + index.to_bytes(6, "big")


def time_bytes(time: int) -> bytes:
    """Returns a time such that bytes sort as times do."""
    return (time + _BIAS).to_bytes(8, "big")


def time_of(raw: bytes) -> int:
    """Reads what `time_bytes` wrote."""
    return int.from_bytes(raw[:8], "big") - _BIAS


def timer_name(time: int, key: bytes) -> tuple[bytes, bytes]:
    """Returns (name, value) of a timer; the key is in the one or the other."""
    return TIMER + time_bytes(time) + key_part(key), b"" if len(key) <= _KEY_MAX else key


def own_timer_name(time: int, head: bytes) -> bytes:
    """Returns the name by which a key's timers are found in order of their times; `head` is TIMERS and the key."""
    return head + time_bytes(time)


def expiry_name(time: int, entry: bytes) -> bytes:
    """Returns the name of the note that an entry, or the first item of a list, is to be looked at at a time."""
    return EXPIRY + time_bytes(time) + entry


def after(prefix: bytes) -> bytes:
    """Returns a name above all that begin with a prefix."""
    return prefix + b"\xff" * 400


def _digest(key: bytes) -> bytes:
    return hashlib.blake2b(key, digest_size=_DIGEST).digest()


Entries = list[tuple[bytes, bytes]]
"""Names and values of entries."""


@dataclass(frozen=True)
class Variable:
    """A state variable.

    Attributes:
        name: its name.
        kind: what `getValueState`, `getListState` and `getMapState` make.
        schema: of its value, of a list's items, of the values of a map's fields.
        key_schema: of the keys of a map's fields; None for the others.
        ttl_ms: time to live, ms; None without one.
    """

    name: str
    kind: Literal["value", "list", "map"]
    schema: StructType
    key_schema: StructType | None = None
    ttl_ms: int | None = None

    @property
    def subject(self) -> str:
        """What a sentence about it begins with."""
        return f"The state variable {self.name}"

    @property
    def head(self) -> bytes:
        """What the names of its entries begin with; the key follows."""
        family = {"value": VALUE, "list": LIST, "map": MAP}[self.kind]
        return family + label_part(self.name)


def in_ranges(variables: Iterable[Variable]) -> bool:
    """Returns whether entries of variables are read by ranges of their names: those of lists and maps."""
    return any(variable.kind != "value" for variable in variables)


def list_head(first: int, end: int) -> bytes:
    """Returns the value of a list's entry whose items have the indexes first..end-1."""
    return first.to_bytes(6, "big") + end.to_bytes(6, "big")


def with_expiry(expires: int, noted: int | None, row: bytes) -> bytes:
    """Returns a row with the time at which it expires, and that of its expiry entry; None for a list's item."""
    return time_bytes(expires) + (b"" if noted is None else time_bytes(noted)) + row


class Encoding:
    """State to entries, for whoever writes state without a processor; all of a key are entries of `bin_of(key)`.

    >>> encoding = Encoding(StructType.fromDDL("user string"))
    >>> key = encoding.key(("ann",))
    >>> entries = encoding.value(Variable("n", "value", StructType.fromDDL("n long")), key, (3,))

    Args:
        key_schema: of the grouping key, as Spark gives it in the order of the grouping columns.
    """

    def __init__(self, key_schema: StructType):
        self._key, self._rows, self._keys = KeyCodec(key_schema), dict[str, StateRowCodec](), dict[str, KeyCodec]()

    def key(self, row: Sequence[Any]) -> bytes:
        """Returns a grouping key, one value per column, as bytes; `impls.processor.keys.key_sql` does so in Spark."""
        return self._key.encode(row)

    def bin_of(self, key: bytes, bins: int) -> int:
        """Returns the bin of a key."""
        return hash_bytes(key) * bins >> 64

    def value(self, variable: Variable, key: bytes, row: Sequence[Any], expires: int | None = None) -> Entries:
        """Returns the entries of a value; `expires` is the time at which it does, ms, for one with a time to live."""
        return self._expiring(variable.head + key_part(key), b"", self._row(variable).encode(row), expires)

    def items(
        self, variable: Variable, key: bytes, rows: Sequence[Sequence[Any]], expires: Sequence[int] | None = None
    ) -> Entries:
        """Returns the entries of a list, none for an empty one; `expires` has one time per item."""
        if not rows:
            return []
        name, codec = variable.head + key_part(key), self._row(variable)
        head, raw = list_head(0, len(rows)), [codec.encode(row) for row in rows]
        out: Entries = []
        if expires is not None:
            head += time_bytes(min(expires))
            raw = [with_expiry(at, None, row) for at, row in zip(expires, raw, strict=True)]
            out.append((expiry_name(min(expires), name), b""))
        return [(name, head), *((item_name(name, i), row) for i, row in enumerate(raw)), *out]

    def field(
        self, variable: Variable, key: bytes, field: Sequence[Any], row: Sequence[Any], expires: int | None = None
    ) -> Entries:
        """Returns the entries of one field of a map."""
        assert variable.key_schema is not None, "a map has a schema of its keys"
        codec = self._keys.setdefault(variable.name, KeyCodec(variable.key_schema, variable.subject))
        part, front = field_part(codec.encode(field))
        name = variable.head + key_part(key) + part
        return self._expiring(name, front, self._row(variable).encode(row), expires)

    def timers(self, key: bytes, times: Iterable[int]) -> Entries:
        """Returns the entries of a key's timers, ms, none for none.

        The earliest time of a bin's timers and expiries is to be given to `BinState.set_earliest_timer`.
        """
        ordered, head = sorted(set(times)), TIMERS + key_part(key)
        own = [(own_timer_name(time, head), b"") for time in ordered]
        return [*own, *(timer_name(time, key) for time in ordered)]

    def earliest(self, entries: Entries) -> int | None:
        """Returns the earliest time of timers and expiries among a bin's entries, ms; None without any."""
        times = [time_of(name[1:]) for name, _ in entries if name[:1] in {TIMER, EXPIRY}]
        return min(times, default=None)

    def _row(self, variable: Variable) -> StateRowCodec:
        if variable.name not in self._rows:
            self._rows[variable.name] = StateRowCodec(variable.schema, variable.subject)
        return self._rows[variable.name]

    def _expiring(self, name: bytes, front: bytes, row: bytes, expires: int | None) -> Entries:
        if expires is None:
            return [(name, front + row)]
        return [(name, front + with_expiry(expires, expires, row)), (expiry_name(expires, name), b"")]
