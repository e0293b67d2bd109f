"""State variables of a processor on a worker's entries: what pyspark's ValueState, ListState and MapState talk to.

pyspark's own classes ask a client that sends messages to a JVM; these clients have its methods, and read and write the
entries of the key at work. Methods and errors are those of pyspark.sql.streaming.{value,list,map}_state_client.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from pyspark.errors import PySparkRuntimeError

from impls.processor.encoding import Variable, with_expiry
from impls.processor.keys import KeyCodec
from impls.processor.rows import StateRowCodec
from impls.processor.scope import Scope
from impls.store import naming

_T = TypeVar("_T")
_EXPIRES, _NOTED = slice(0, 8), slice(8, 16)


def _noted(old: bytes | None) -> int | None:
    return None if old is None else naming.time_of(old[_NOTED])


_LONG = 1 << 63
_READERS = ("get", "get_key_value_pair", "get_row")  # those that end an iteration where Spark answers with an error
_DOING = {  # what Spark's clients call what they do, by method
    "value": {"exists": "checking value state exists", "get": "getting value state", "update": "updating value state",
              "clear": "clearing value state"},
    "list": {"exists": "checking value state exists", "append_value": "updating value state",
             "append_list": "updating value state", "put": "updating value state", "clear": "clearing value state"},
    "map": {"exists": "checking map state exists", "get_value": "getting value",
            "contains_key": "checking if map state contains key", "update_value": "updating map state value",
            "remove_key": "removing key from map state", "clear": "clearing map state"},
}  # fmt: skip


def _raising(error: type[Exception], *args: str) -> Callable[..., Any]:
    def call(*_args: Any) -> Any:
        raise error(*args)

    return call


class _Rows:
    """Rows of a variable, with a time to live or without."""

    def __init__(self, scope: Scope, variable: Variable, codec: StateRowCodec):
        self._scope, self._codec, self._head, self._ttl = scope, codec, variable.head, variable.ttl_ms
        self._variable = variable

    def delete(self) -> None:
        """Makes the other methods raise what Spark's clients raise: PySparkRuntimeError, or that there is no item."""
        text = f"{self._variable.kind.capitalize()} state {self._variable.name} is not initialized."
        for method in _READERS:
            setattr(self, method, _raising(StopIteration))
        for method, doing in _DOING[self._variable.kind].items():
            setattr(self, method, _raising(PySparkRuntimeError, f"Error {doing}: {text}"))

    def _expires(self) -> int:
        """Returns when what is written now expires, ms; it wraps at 64 bits, as Spark's does."""
        assert self._ttl is not None, "only what has a time to live expires"
        return (self._scope.now + self._ttl + _LONG) % (2 * _LONG) - _LONG

    def _live(self, raw: bytes | None, *, noted: bool = True) -> bytes | None:
        """Returns the row of what is stored, None where that is nothing or has expired."""
        if raw is None or not self._ttl:
            return raw
        return None if naming.time_of(raw[_EXPIRES]) <= self._scope.now else raw[16 if noted else 8 :]

    def _store(self, name: bytes, row: bytes, old: bytes | None, front: bytes) -> None:
        """Writes a row of which `old` was stored, both without what stands in front."""
        if not self._ttl:
            self._scope.put(name, front + row)
            return
        expires, before = self._expires(), _noted(old)
        due = expires if before is None else min(before, expires)
        self._scope.note(name, due=due, before=before)
        self._scope.put(name, front + with_expiry(expires, due, row))

    def _remove(self, name: bytes, old: bytes | None) -> None:
        """Deletes an entry."""
        if old is not None:
            if self._ttl:
                self._scope.note(name, due=None, before=_noted(old))
            self._scope.put(name, None)


class ValueClient(_Rows):
    """The client of a ValueState."""

    def exists(self, _name: str) -> bool:
        """Returns whether the key has a value."""
        return self._live(self._scope.get(self._head)) is not None

    def get(self, _name: str) -> tuple[Any, ...] | None:
        """Returns the key's value."""
        raw = self._live(self._scope.get(self._head))
        return None if raw is None else self._codec.decode(raw)

    def update(self, _name: str, value: Any) -> None:
        """Sets the key's value."""
        row = self._codec.encode(value)
        name, old = self._scope.name(self._head), self._scope.get(self._head) if self._ttl else None
        self._store(name, row, old, self._scope.front)

    def clear(self, _name: str) -> None:
        """Deletes the key's value."""
        self._remove(self._scope.name(self._head), self._scope.get(self._head))


def _next_of(reading: dict[str, Iterator[_T]], iterator_id: str, begin: Callable[[], Iterator[_T]]) -> _T:
    """Returns the next item of an iterator, which its first call begins; raises StopIteration behind the last."""
    if iterator_id not in reading:
        reading[iterator_id] = begin()
    for item in reading[iterator_id]:
        return item
    del reading[iterator_id]
    raise StopIteration


class ListClient(_Rows):
    """The client of a ListState."""

    def __init__(self, scope: Scope, variable: Variable, codec: StateRowCodec):
        super().__init__(scope, variable, codec)
        self._name, self._reading = variable.name, dict[str, Iterator[bytes]]()

    def exists(self, _name: str) -> bool:
        """Returns whether the key's list has an item."""
        return next(self._rows(), None) is not None

    def get(self, _name: str, iterator_id: str) -> tuple[tuple[Any, ...], bool]:
        """Returns the next item of an iterator, which begins with its first call, and that it may not be the last."""
        return self._codec.decode(_next_of(self._reading, iterator_id, self._rows)), False

    def append_value(self, _name: str, value: Any) -> None:
        """Adds an item."""
        self._append([self._codec.encode(value)])

    def append_list(self, _name: str, values: Sequence[Any]) -> None:
        """Adds items; raises PySparkRuntimeError for none, as Spark does."""
        self._append(self._encoded(values))

    def put(self, _name: str, values: Sequence[Any]) -> None:
        """Makes items the list; raises PySparkRuntimeError for none, as Spark does."""
        rows = self._encoded(values)
        self.clear(_name)
        self._append(rows)

    def clear(self, _name: str) -> None:
        """Deletes the list."""
        name, (first, end, noted) = self._scope.name(self._head), self._bounds()
        for index in range(first, end):
            self._scope.put(naming.item_name(name, index), None)
        if end > first:
            self._scope.note(name, due=None, before=noted)
            self._scope.put(name, None)

    def _encoded(self, values: Sequence[Any]) -> list[bytes]:
        rows = [self._codec.encode(value) for value in values]
        if not rows:
            raise PySparkRuntimeError(
                "Error updating value state: [ILLEGAL_STATE_STORE_VALUE.EMPTY_LIST_VALUE] Illegal value provided to "
                f"the State Store: Cannot write empty list values to State store for StateName {self._name}."
            )
        return rows

    def _bounds(self) -> tuple[int, int, int | None]:
        """Returns (index of the first item, index behind the last, time of the expiry)."""
        raw = self._scope.get(self._head)
        return *naming.list_bounds(raw), naming.time_of(raw[12:]) if raw is not None and self._ttl else None

    def _append(self, rows: list[bytes]) -> None:
        name, (first, end, noted) = self._scope.name(self._head), self._bounds()
        back = b""
        if self._ttl:
            expires = self._expires()
            rows = [with_expiry(expires, None, row) for row in rows]
            due = expires if noted is None else min(noted, expires)
            self._scope.note(name, due=due, before=noted)
            back = naming.time_bytes(due)
        for index, row in enumerate(rows, end):
            self._scope.put(naming.item_name(name, index), row)
        self._scope.put(name, self._scope.front + naming.list_head(first, end + len(rows)) + back)

    def _rows(self) -> Iterator[bytes]:
        """Yields the items that have not expired, as they are when the first is asked for."""
        name, (first, end, _) = self._scope.name(self._head), self._bounds()
        if end == first:
            return
        low, high = naming.item_name(name, first), naming.item_name(name, end)
        for _, raw in self._scope.entries.scan(self._scope.bin, low, high):
            row = self._live(raw, noted=False)
            if row is not None:
                yield row


class MapClient(_Rows):
    """The client of a MapState."""

    def __init__(self, scope: Scope, variable: Variable, codec: StateRowCodec, keys: KeyCodec):
        super().__init__(scope, variable, codec)
        self._keys, self._reading = keys, dict[str, Iterator[tuple[bytes, bytes]]]()

    def exists(self, _name: str) -> bool:
        """Returns whether the key's map has a field."""
        return next(self._fields(), None) is not None

    def get_value(self, _name: str, key: Any) -> Any:
        """Returns a field's value as a Row, None where there is none."""
        raw = self._live(self._stored(key)[2])
        return None if raw is None else self._codec.decode_row(raw)

    def contains_key(self, _name: str, key: Any) -> bool:
        """Returns whether there is a field."""
        return self._live(self._stored(key)[2]) is not None

    def update_value(self, _name: str, key: Any, value: Any) -> None:
        """Sets a field."""
        row = self._codec.encode(value)
        name, front, old = self._stored(key)
        self._store(name, row, old, front)

    def remove_key(self, _name: str, key: Any) -> None:
        """Deletes a field."""
        name, _, old = self._stored(key)
        self._remove(name, old)

    def clear(self, _name: str) -> None:
        """Deletes all fields."""
        for name, _, stored in self._scanned():
            self._remove(name, stored)

    def get_key_value_pair(self, _name: str, iterator_id: str) -> tuple[tuple[Any, ...], tuple[Any, ...], bool]:
        """Returns the next field of an iterator, which begins with its first call, and that it may not be the last."""
        key, row = _next_of(self._reading, iterator_id, self._fields)
        return tuple(self._keys.decode(key)), self._codec.decode(row), False

    def get_row(self, _name: str, iterator_id: str, is_key: bool) -> tuple[tuple[Any, ...], bool]:
        """Returns the key or the value of the next field of an iterator."""
        key, row = _next_of(self._reading, iterator_id, self._fields)
        return tuple(self._keys.decode(key)) if is_key else self._codec.decode(row), False

    def _stored(self, key: Any) -> tuple[bytes, bytes, bytes | None]:
        """Returns (name, what stands in front of the value, the value) of a field."""
        part, front = naming.field_part(self._keys.encode(key))
        name, front = self._scope.name(self._head) + part, self._scope.front + front
        raw = self._scope.entries.get(self._scope.bin, name)
        return name, front, None if raw is None else raw[len(front) :]

    def _fields(self) -> Iterator[tuple[bytes, bytes]]:
        """Yields (key, row) of the fields that have not expired, as they are when the first is asked for."""
        for _, key, stored in self._scanned():
            row = self._live(stored)
            if row is not None:
                yield key, row

    def _scanned(self) -> Iterator[tuple[bytes, bytes, bytes]]:
        """Yields (name, key, value) of all fields, as they are when the first is asked for."""
        head, front = self._scope.name(self._head), len(self._scope.front)
        for name, raw in self._scope.entries.scan(self._scope.bin, head, naming.after(head)):
            yield name, *naming.field_of(name[len(head) :], raw[front:])
