"""State as rows of Spark's column families, which are the tables of Spark's state store.

| family | key | value |
|---|---|---|
| of a value | grouping key | row |
| of a list, one row per item | grouping key | row |
| of a map | (grouping key, key of the field) | row |
| `$rowCounter_LIST` without, `$count_LIST` with a time to live | grouping key | number of items |
| `$min_LIST` | grouping key | the earliest expiry of an item |
| `$ttl_VARIABLE` | (expiry, key of the value, list or field) | - |
| `$procTimers_keyToTimestamp`, or `$eventTimers_` | (grouping key, time) | - |
| `$procTimers_timestampToKey`, or `$eventTimers_` | (time, grouping key) | - |
| `default`, the only one of aggregates | grouping key | buffers |

With a time to live a row is (row, time at which it expires). Times are ms. Spark 4.3's writer and reader of all column
families agree on these (`StatePartitionAllColumnFamiliesWriter`).
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

from pyspark.sql import types as t

from impls.errors import UsageError
from impls.operators.rowjson import each, nullable
from impls.processor.encoding import Variable
from impls.processor.handle import TimeMode
from impls.processor.kept import EvolvedRows, History, KeptVariable, converter
from impls.processor.keys import KeyCodec
from impls.processor.rows import plain
from impls.reading.forms import KINDS, Entries, Opener
from impls.store import naming

Row = tuple[Any, ...]
"""A row as Spark has it inside: times are numbers, rows are tuples."""

_One = Callable[[Any], Any]
_LONG, _NOTHING = t.LongType(), (None,)
_DUMMY = t.StructType([t.StructField("__dummy__", t.NullType())])
_TIMER_PREFIXES = {"processingtime": "$procTimers_", "eventtime": "$eventTimers_"}


@dataclass(frozen=True)
class Family:
    """A column family: its name, and the types of its keys and values."""

    name: str
    key: t.StructType
    value: t.StructType


class FamilyRow(NamedTuple):
    """A row of a column family.

    Attributes:
        family: name of the column family.
        place: of a list's items their order, 0 for all others.
        grouping: the grouping key, by which Spark chooses the partition.
        key, value: of the row.
    """

    family: str
    place: int
    grouping: Row
    key: Row
    value: Row


@dataclass(frozen=True)
class ProcessorState:
    """The state of a processor as Spark keeps it; it travels to tasks.

    Attributes:
        key: type of the grouping key.
        variables: those of the Spark query, by name.
        kept: those of the checkpoint, by name, each among the former.
        timers: what timers go by.
        deleted: names of variables whose rows are left out.
    """

    key: t.StructType
    variables: Mapping[str, Variable]
    kept: Mapping[str, KeptVariable]
    timers: TimeMode
    deleted: Collection[str] = ()

    def families(self) -> list[Family]:
        """Returns the column families that there may be rows of."""
        found = [family for name in self.kept for family in _families_of(self.variables[name], self.key)]
        if self.timers in _TIMER_PREFIXES:
            prefix, pair = _TIMER_PREFIXES[self.timers], [("key", self.key), ("expiryTimestampMs", _LONG)]
            found += [Family(f"{prefix}keyToTimestamp", _struct(*pair), _DUMMY)]
            found += [Family(f"{prefix}timestampToKey", _struct(*reversed(pair)), _DUMMY)]
        return found


def _struct(*fields: tuple[str, t.DataType]) -> t.StructType:
    return t.StructType([t.StructField(name, kind) for name, kind in fields])


def _families_of(variable: Variable, key: t.StructType) -> Iterator[Family]:
    name, value, expires = variable.name, variable.schema, variable.ttl_ms is not None
    if variable.key_schema is not None:
        key = _struct(("key", key), ("userKey", variable.key_schema))
    if expires:
        value = _struct(("value", value), ("ttlExpirationMs", _LONG))
        yield Family(f"$ttl_{name}", _struct(("expirationMs", _LONG), ("elementKey", key)), _DUMMY)
    yield Family(name, key, value)
    if variable.kind == "list":
        yield Family(f"${'count' if expires else 'rowCounter'}_{name}", key, _struct(("count", _LONG)))
        if expires:
            yield Family(f"$min_{name}", key, _struct(("expirationMs", _LONG)))


class ProcessorRows:
    """rows() gives the rows of column families that hold what a bin's entries do.

    Args:
        state: what the entries are of.
    """

    def __init__(self, state: ProcessorState):
        self._state, self._key = state, _key_reader(state.key)
        self._rows, self._keys, self._tuples = dict[str, EvolvedRows](), dict[str, _One](), dict[str, _One]()
        for name, kept in state.kept.items():
            variable = state.variables[name]
            schemas = tuple(plain(schema) for schema in kept.history.schemas)
            self._rows[name] = EvolvedRows(History(schemas, _place_of_schema(variable, kept)))
            self._tuples[name] = _tuples(variable.schema)
            if variable.key_schema is not None:
                self._keys[name] = _key_reader(variable.key_schema)

    def rows(self, entries: Entries) -> Iterator[FamilyRow]:
        """Yields rows."""
        opener = Opener()
        for front, group in groupby(entries, key=lambda entry: _front(entry[0])):
            family, own = front[:1], list(group)
            if family == naming.TIMER:
                yield from self._timers(own)
            elif family == naming.LIST:
                opener(*own[0])
            elif family in KINDS and naming.label_of(front) not in self._state.deleted:
                opened = [opener(*entry) for entry in own]
                key = self._key(opened[0][0])
                yield from self._variable(KINDS[family], naming.label_of(front), key, opened)

    def _timers(self, entries: Entries) -> Iterator[FamilyRow]:
        prefix = _TIMER_PREFIXES[self._state.timers]
        for name, value in entries:
            time, raw = naming.timer_of(name, value)
            key = self._key(raw)
            yield FamilyRow(f"{prefix}keyToTimestamp", 0, key, (key, time), _NOTHING)
            yield FamilyRow(f"{prefix}timestampToKey", 0, key, (time, key), _NOTHING)

    def _variable(
        self, kind: str, name: str, key: Row, entries: Sequence[tuple[bytes, Any, bytes]]
    ) -> Iterator[FamilyRow]:
        """Yields the rows of a variable's entries of one grouping key, as `Opener` gives them."""
        expiries, expires = list[int](), self._state.kept[name].expires
        for place, (_, field, stored) in enumerate(entries):
            whole = (key, self._keys[name](field)) if kind == "map" else key
            if not expires:
                yield FamilyRow(name, place, key, whole, self._row(name, stored))
                continue
            expiry = naming.time_of(stored)
            row = self._row(name, stored[8 if kind == "list" else 16 :])
            yield FamilyRow(name, place, key, whole, (row, expiry))
            expiries.append(expiry)
            if kind != "list":
                yield FamilyRow(f"$ttl_{name}", 0, key, (expiry, whole), _NOTHING)
        if kind == "list":
            yield FamilyRow(f"${'count' if expires else 'rowCounter'}_{name}", 0, key, key, (len(entries),))
            if expires:
                yield FamilyRow(f"$ttl_{name}", 0, key, (min(expiries), key), _NOTHING)
                yield FamilyRow(f"$min_{name}", 0, key, key, (min(expiries),))

    def _row(self, name: str, stored: bytes) -> Row:
        row: Row = self._tuples[name](self._rows[name].decode(stored))
        return row


def _key_reader(schema: t.StructType) -> _One:
    decode, tuples = KeyCodec(plain(schema)).decode, _tuples(schema)
    return lambda raw: tuples(decode(raw))


def _tuples(kind: t.DataType) -> _One:
    """Returns what makes tuples of the rows in a value, which travel to the JVM."""
    if isinstance(kind, t.UserDefinedType):
        return _tuples(kind.sqlType())
    if isinstance(kind, t.ArrayType):
        return each(nullable(_tuples(kind.elementType)))
    if isinstance(kind, t.MapType):
        key, item = _tuples(kind.keyType), nullable(_tuples(kind.valueType))
        return lambda values: {key(k): item(v) for k, v in values.items()}
    if not isinstance(kind, t.StructType):
        return lambda value: value
    fields = [nullable(_tuples(field.dataType)) for field in kind.fields]
    return lambda values: tuple(field(value) for field, value in zip(fields, values, strict=True))


def _front(name: bytes) -> bytes:
    """Returns the family of a name, its variable and its key, by which entries are told apart."""
    if name[:1] not in {*KINDS, naming.LIST}:
        return name[:1]
    return name[: len(name) - len(naming.key_and_rest(name)[2])]


def _place_of_schema(variable: Variable, kept: KeptVariable) -> int:
    """Returns the place of a variable's schema among those that a checkpoint's had; raises UsageError for another."""
    texts = [schema.simpleString() for schema in kept.history.schemas]
    if variable.schema.simpleString() not in texts:
        raise UsageError(
            f"{variable.subject} has rows of {variable.schema.simpleString()} in the Spark query, and of {texts[-1]} "
            "in the checkpoint."
        )
    return texts.index(variable.schema.simpleString())


def checked(state: ProcessorState) -> ProcessorState:
    """Returns a processor's state whose variables are those of the Spark query; raises UsageError where they differ."""
    for name, kept in state.kept.items():
        variable = state.variables.get(name)
        if variable is None:
            raise UsageError(f"The checkpoint has the state variable {name}, and the Spark query has no such one.")
        expires = variable.ttl_ms is not None
        if (variable.kind, expires) != (kept.kind, kept.expires):
            raise UsageError(
                f"{variable.subject} is {_described(variable.kind, expires)} in the Spark query, and "
                f"{_described(kept.kind, kept.expires)} in the checkpoint."
            )
        _place_of_schema(variable, kept)
        for written in kept.history.schemas:
            try:
                converter(written, variable.schema)
            except TypeError as error:
                raise UsageError(f"{variable.subject} has rows in the checkpoint that are wider: {error}.") from error
        if kept.keys is not None and not _equal(kept.keys, variable.key_schema):
            raise UsageError(f"{variable.subject} has keys of another type in the Spark query than in the checkpoint.")
    return state


def _described(kind: str, expires: bool) -> str:
    return f"a {kind} {'with' if expires else 'without'} a time to live"


def _equal(one: t.StructType, other: t.StructType | None) -> bool:
    return other is not None and one.simpleString() == other.simpleString()


def wide_schema(key: t.StructType, families: Sequence[Family]) -> t.StructType:
    """Returns the type of rows with columns for all families: family, place, grouping key, and two for each family."""
    columns: list[tuple[str, t.DataType]] = [("family", t.IntegerType()), ("place", _LONG), ("grouping", key)]
    for number, family in enumerate(families):
        columns += [(f"key{number}", family.key), (f"value{number}", family.value)]
    return _struct(*columns)


class Widening:
    """Makes rows of column families into rows of `wide_schema`."""

    def __init__(self, families: Sequence[Family]):
        self._places = {family.name: number for number, family in enumerate(families)}

    def __call__(self, row: FamilyRow) -> Row:
        """Returns a row."""
        number = self._places[row.family]
        out: list[Any] = [number, row.place, row.grouping, *([None] * (2 * len(self._places)))]
        out[3 + 2 * number], out[4 + 2 * number] = row.key, row.value
        return tuple(out)
