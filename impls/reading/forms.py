"""How entries of state become rows that a user reads, by the form that a query has left (`Checkpoint.keep_form`).

A form is a dictionary of JSON values. `Operator.state_form` gives the operator's part, a query's start the rest:

| name | meaning |
|---|---|
| values | what entries are: bytes, json, keyed (`impls.store.keyed`), processor, aggregates, count or dense |
| begins | what a bin begins with: empty, dense, preload, or own, which only the operator knows |
| key | what keys are before they are bytes: long, string or binary |
| columns | of a processor the schema of the grouping key, as which its keys are encoded |
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from pyspark.sql import types as t
from pyspark.sql.pandas.types import from_arrow_type

from impls.aggregation import KeyColumns
from impls.driver.keystate import StateRow
from impls.errors import StateError
from impls.operators import Aggregate
from impls.operators.aggregates.rows import key_type
from impls.processor.keys import KeyCodec
from impls.processor.rows import row_maker
from impls.reading.variables import Variables
from impls.store import naming
from impls.store.entries import digest_in

Entries = list[tuple[bytes, bytes]]
"""Names and values of a bin's entries, in order of the names."""


class Digest(str):
    """The digest, as hexadecimal digits, of a long key, which its state does not have itself.

    Keys from 151 bytes on are long where a key has several entries, others from 480 bytes on.
    """

    __slots__ = ()


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
        return json.loads(raw)
    except ValueError:
        return raw


def _count(raw: bytes) -> int:
    return int.from_bytes(raw[:8], "little", signed=True)


def _single(key_of: Callable[[bytes], Any], load: Callable[[bytes], Any]) -> Reader:
    """Returns what reads entries that are a key's only one."""

    def read(bin_: int, entries: Entries) -> Iterator[StateRow]:
        for name, value in entries:
            digest = digest_in(name)
            key = key_of(name) if digest is None else Digest(digest.hex())
            yield StateRow(bin_, key, "value", "", None, load(value))

    return read


def _aggregates(form: Mapping[str, Any], *, columns: bool) -> Reader:
    operator, keys = Aggregate.of_form({**form, "ansi": False}), keys_of(form["keys"]) if columns else None
    key_of, result = _key_of(form["key"]), row_maker([measure.name for measure in operator.measures])

    def read(bin_: int, entries: Entries) -> Iterator[StateRow]:
        kept = [(key, value) for key, value in entries if keys is None or key[:1] < naming.LIST]  # without expiries
        if not kept:
            return
        digests = [digest_in(key) for key, _ in kept]
        raw = [key for (key, _), digest in zip(kept, digests, strict=True) if digest is None]
        whole = map(key_of, raw) if keys is None else iter(keys(raw))
        known = (next(whole) if digest is None else Digest(digest.hex()) for digest in digests)
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


class StoredKeys:
    """Keys by the names of entries: a long one is known where an entry of a timer has it.

    Args:
        key_of: reads a key.
        timers: entries of timers.
    """

    def __init__(self, key_of: Callable[[bytes], Any], timers: Iterable[tuple[bytes, bytes]]):
        self._key_of = key_of
        self._long = {naming.digest_of(key): key for _, key in timers if key}

    def __call__(self, raw: bytes, *, digested: bool) -> Any:
        """Returns the key of a name, its `Digest` where no timer has it."""
        if not digested:
            return self._key_of(raw)
        return self._key_of(self._long[raw]) if raw in self._long else Digest(raw.hex())


def _keyed(key_of: Callable[[bytes], Any]) -> Reader:
    def read(bin_: int, entries: Entries) -> Iterator[StateRow]:
        keys = StoredKeys(key_of, [entry for entry in entries if entry[0][:1] == naming.TIMER])
        firsts: dict[bytes, int] = {}
        for name, raw in entries:
            if name[:1] == naming.TIMER:
                time, key = naming.timer_of(name, raw)
                yield StateRow(bin_, key_of(key), "timer", "", None, time)
            elif name[:1] == naming.LIST:
                firsts[name[1:]] = naming.list_bounds(raw)[0]
            elif (kind := _KINDS.get(name[:1])) is not None:
                raw_key, digested, rest = naming.key_and_rest(name)
                field, value = apart(kind, name, rest, raw, firsts)
                yield StateRow(
                    bin_, keys(raw_key, digested=digested), kind, naming.label_of(name), field, json.loads(value)
                )
            else:
                raise StateError(f"Bin {bin_} has an entry that is of no operator with keyed state.")

    return read


_KINDS = {naming.VALUE: "value", naming.MAP: "map", naming.ITEM: "list"}


def apart(kind: str, name: bytes, rest: bytes, raw: bytes, firsts: Mapping[bytes, int]) -> tuple[Any, bytes]:
    """Returns (field of a map or place in a list, stored value) of an entry."""
    if kind == "map":
        return naming.field_of(rest, raw)
    if kind == "list":
        return int.from_bytes(rest, "big") - firsts.get(name[1 : len(name) - len(rest)], 0), raw
    return None, raw


def _processor(key_of: Callable[[bytes], Any], variables: Variables) -> Reader:
    def read(bin_: int, entries: Entries) -> Iterator[StateRow]:
        keys = StoredKeys(key_of, [entry for entry in entries if entry[0][:1] == naming.TIMER])
        places: dict[bytes, int] = {}
        for name, raw in entries:
            if name[:1] == naming.TIMERS:
                raw_key, digested, time = naming.own_timer_of(name)
                yield StateRow(bin_, keys(raw_key, digested=digested), "timer", "", None, time)
            elif (kind := _KINDS.get(name[:1])) is not None:
                raw_key, digested, rest = naming.key_and_rest(name)
                label, (field, stored) = naming.label_of(name), apart(kind, name, rest, raw, {})
                found = variables.read(label, field, stored)
                if found is None:
                    continue
                field, value = found
                if kind == "list":  # items that have expired have no place
                    whole = name[: len(name) - len(rest)]
                    field = places[whole] = places.get(whole, -1) + 1
                yield StateRow(bin_, keys(raw_key, digested=digested), kind, label, field, value)

    return read
