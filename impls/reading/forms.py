"""How entries of state become rows that a user reads, by the form that a query has left (`Checkpoint.keep_form`).

A form is a dictionary of JSON values. `Operator.state_form` gives the operator's part, a query's start the rest:

| name | meaning |
|---|---|
| values | what entries are: bytes, json, keyed (`impls.store.keyed`), processor, aggregates, count or dense |
| begins | what a bin begins with: empty, dense, preload, or own, which only the operator knows |
| key | what keys are before they are bytes: long, string or binary |
| columns | of a processor the schema of the grouping key, as which its keys are encoded |
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pyspark.sql import types as t
from pyspark.sql.pandas.types import from_arrow_type

from impls.aggregation import KeyColumns
from impls.driver.keystate import StateRow
from impls.errors import CorruptStateError, StateError
from impls.operators import Aggregate
from impls.operators.aggregates.rows import key_type
from impls.processor.keys import KeyCodec
from impls.processor.rows import row_maker
from impls.protocol.jsontext import value_from_text
from impls.reading.variables import Variables
from impls.store import naming
from impls.store.entries import split

Entries = list[tuple[bytes, bytes]]
"""Keys and values of a bin's entries, in order of their names."""


Reader = Callable[[int, Entries], Iterator[StateRow]]
"""Reads the entries of a bin."""


ONLY_FIRST = {"aggregates", "count"}
"""Forms of values that only the version of the pipeline has with which the query began."""


def reader_of(form: Mapping[str, Any], *, columns: bool = False, variables: Variables | None = None) -> Reader:
    """Returns what reads entries of a form.

    Args:
        form: the form.
        columns: keys are encoded columns (`impls.processor.keys`), as `impls.aggregate` has them.
        variables: of a processor.
    """
    match form["values"]:
        case "aggregates":
            return _aggregates(form, columns=columns)
        case "processor":
            assert variables is not None, "a processor keeps its variables beside the checkpoint"
            return _processor(KeyCodec(t.StructType.fromJson(form["columns"])).decode, variables)
        case "keyed":
            return _keyed(_key_of(form["key"]))
        case "json":
            return _single(_key_of(form["key"]), _json)
        case "count":
            return _single(_key_of("long"), _count)
    return _single(_key_of(form["key"]), bytes)


def _key_of(kind: str) -> Callable[[bytes], Any]:
    if kind == "long":
        return lambda raw: int.from_bytes(raw, "big", signed=True)
    return (lambda raw: raw.decode(errors="backslashreplace")) if kind == "string" else bytes


def _json(raw: bytes) -> Any:
    """Reads JSON; what is none is of a version of the pipeline that has an encoding of its own."""
    try:
        return value_from_text(raw)
    except ValueError:
        return raw


def _count(raw: bytes) -> int:
    return int.from_bytes(raw[:8], "little", signed=True)


def _single(key_of: Callable[[bytes], Any], load: Callable[[bytes], Any]) -> Reader:
    """Returns what reads entries that are a key's only one."""

    def read(bin_: int, entries: Entries) -> Iterator[StateRow]:
        for name, value in entries:
            yield StateRow(bin_, key_of(name), "value", "", None, load(value))

    return read


def _aggregates(form: Mapping[str, Any], *, columns: bool) -> Reader:
    operator, keys = Aggregate.of_form({**form, "ansi": False}), keys_of(form["keys"]) if columns else None
    key_of, result = _key_of(form["key"]), row_maker([measure.name for measure in operator.measures])

    def read(bin_: int, entries: Entries) -> Iterator[StateRow]:
        kept = [(key, value) for key, value in entries if keys is None or key[:1] < naming.LIST]  # without expiries
        if not kept:
            return
        raw = [key for key, _ in kept]
        known = map(key_of, raw) if keys is None else keys(raw)
        buffers = operator.buffers_of([value for _, value in kept])
        results = [measure.result(own).to_pylist() for measure, own in zip(operator.measures, buffers, strict=True)]
        for key, values in zip(known, zip(*results, strict=True), strict=True):
            yield StateRow(bin_, key, "value", "", None, result(values))

    return read


def _row_of(values: dict[str, Any]) -> t.Row:
    """Returns a row; a window within it becomes one too, so that keys can be hashed."""
    return row_maker([*values])([_row_of(value) if isinstance(value, dict) else value for value in values.values()])


def key_schema(kinds: Mapping[str, str]) -> t.StructType:
    """Returns the schema of a key, given the names of its columns' types, which pyspark parses in a session only."""
    return t.StructType([t.StructField(name, from_arrow_type(key_type(kind))) for name, kind in kinds.items()])


def keys_of(kinds: Mapping[str, str]) -> Callable[[list[bytes]], list[t.Row]]:
    """Returns what reads keys of columns as Rows, given the names of their types; times have the zone UTC."""
    columns = KeyColumns(key_schema(kinds))
    return lambda raw: [_row_of(values) for values in columns(raw).to_pylist()]


KINDS = {naming.VALUE: "value", naming.MAP: "map", naming.ITEM: "list"}
"""What each entry of these families is one of."""


class Opener:
    """Takes a bin's entries of variables apart, which come in order of their names: a list before its items."""

    def __init__(self) -> None:
        self._long: dict[bytes, bytes] = {}

    def __call__(self, name: bytes, raw: bytes) -> tuple[bytes, Any, bytes]:
        """Returns (grouping key, field of a map or index of an item, what is stored of the value).

        Raises CorruptStateError for an item of a long key whose list is not there.
        """
        key, digested, rest = naming.key_and_rest(name)
        if digested:
            if name[:1] in naming.FRONTED:
                self._long[key], raw = split(raw)
            elif key not in self._long:
                raise CorruptStateError("An item of a list is there without the list: the state is damaged.")
            key = self._long[key]
        if name[:1] == naming.MAP:
            return key, *naming.field_of(rest, raw)
        return key, int.from_bytes(rest, "big") if rest else None, raw


def _keyed(key_of: Callable[[bytes], Any]) -> Reader:
    def read(bin_: int, entries: Entries) -> Iterator[StateRow]:
        opener, first = Opener(), dict[tuple[str, bytes], int]()
        for name, raw in entries:
            if name[:1] == naming.TIMER:
                time, key = naming.timer_of(name, raw)
                yield StateRow(bin_, key_of(key), "timer", "", None, time)
                continue
            if name[:1] not in {*KINDS, naming.LIST}:
                raise StateError(f"Bin {bin_} has an entry that is of no operator with keyed state.")
            label, (key, field, stored) = naming.label_of(name), opener(name, raw)
            if name[:1] == naming.LIST:
                first[label, key] = naming.list_bounds(stored)[0]
                continue
            if name[:1] == naming.ITEM:
                if (label, key) not in first:
                    raise CorruptStateError(f"Bin {bin_} has an item without its list: the state is damaged.")
                field -= first[label, key]
            yield StateRow(bin_, key_of(key), KINDS[name[:1]], label, field, value_from_text(stored))

    return read


def _processor(key_of: Callable[[bytes], Any], variables: Variables) -> Reader:
    def read(bin_: int, entries: Entries) -> Iterator[StateRow]:
        opener, places = Opener(), dict[tuple[str, bytes], int]()
        for name, raw in entries:
            if name[:1] == naming.TIMER:
                time, key = naming.timer_of(name, raw)
                yield StateRow(bin_, key_of(key), "timer", "", None, time)
            elif name[:1] in {*KINDS, naming.LIST}:
                label, (key, field, stored) = naming.label_of(name), opener(name, raw)
                found = None if name[:1] == naming.LIST else variables.read(label, field, stored)
                if found is None:
                    continue
                field, value = found
                if name[:1] == naming.ITEM:  # items that have expired have no place
                    field = places[label, key] = places.get((label, key), -1) + 1
                yield StateRow(bin_, key_of(key), KINDS[name[:1]], label, field, value)

    return read
