"""State of a StatefulProcessor as entries of bins: what is stored for a value, a list, a map, a timer.

| entry | name (`impls.store.naming`) | value |
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
stands: one entry has one expiry, at or before the time at which it expires. Times are ms, and sort as bytes. A long key
stands in front of the values of its values, lists and fields.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pyspark.sql.types import StructType

from impls.processor.keys import KeyCodec
from impls.processor.rows import StateRowCodec
from impls.store import naming
from impls.store.hashing import hash_bytes

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
        family = {"value": naming.VALUE, "list": naming.LIST, "map": naming.MAP}[self.kind]
        return family + naming.label_part(self.name)


def in_ranges(variables: Iterable[Variable]) -> bool:
    """Returns whether entries of variables are read by ranges of their names: those of lists and maps."""
    return any(variable.kind != "value" for variable in variables)


def with_expiry(expires: int, noted: int | None, row: bytes) -> bytes:
    """Returns a row with the time at which it expires, and that of its expiry entry; None for a list's item."""
    return naming.time_bytes(expires) + (b"" if noted is None else naming.time_bytes(noted)) + row


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
        name, encoded = variable.head + naming.key_part(key), self._row(variable).encode(row)
        return self._expiring(name, naming.key_front(key), encoded, expires)

    def items(
        self, variable: Variable, key: bytes, rows: Sequence[Sequence[Any]], expires: Sequence[int] | None = None
    ) -> Entries:
        """Returns the entries of a list, none for an empty one; `expires` has one time per item."""
        if not rows:
            return []
        name, codec = variable.head + naming.key_part(key), self._row(variable)
        head, raw = naming.key_front(key) + naming.list_head(0, len(rows)), [codec.encode(row) for row in rows]
        out: Entries = []
        if expires is not None:
            head += naming.time_bytes(min(expires))
            raw = [with_expiry(at, None, row) for at, row in zip(expires, raw, strict=True)]
            out.append((naming.expiry_name(min(expires), name), b""))
        return [(name, head), *((naming.item_name(name, i), row) for i, row in enumerate(raw)), *out]

    def field(
        self, variable: Variable, key: bytes, field: Sequence[Any], row: Sequence[Any], expires: int | None = None
    ) -> Entries:
        """Returns the entries of one field of a map."""
        assert variable.key_schema is not None, "a map has a schema of its keys"
        codec = self._keys.setdefault(variable.name, KeyCodec(variable.key_schema, variable.subject))
        part, front = naming.field_part(codec.encode(field))
        name = variable.head + naming.key_part(key) + part
        return self._expiring(name, naming.key_front(key) + front, self._row(variable).encode(row), expires)

    def timers(self, key: bytes, times: Iterable[int]) -> Entries:
        """Returns the entries of a key's timers, ms, none for none.

        The earliest time of a bin's timers and expiries is to be given to `BinState.set_earliest_timer`.
        """
        ordered, head = sorted(set(times)), naming.TIMERS + naming.key_part(key)
        own = [(naming.own_timer_name(time, head), b"") for time in ordered]
        return [*own, *(naming.timer_name(time, key) for time in ordered)]

    def earliest(self, entries: Entries) -> int | None:
        """Returns the earliest time of timers and expiries among a bin's entries, ms; None without any."""
        times = [naming.time_of(name[1:]) for name, _ in entries if name[:1] in {naming.TIMER, naming.EXPIRY}]
        return min(times, default=None)

    def _row(self, variable: Variable) -> StateRowCodec:
        if variable.name not in self._rows:
            self._rows[variable.name] = StateRowCodec(variable.schema, variable.subject)
        return self._rows[variable.name]

    def _expiring(self, name: bytes, front: bytes, row: bytes, expires: int | None) -> Entries:
        if expires is None:
            return [(name, front + row)]
        return [(name, front + with_expiry(expires, expires, row)), (naming.expiry_name(expires, name), b"")]
