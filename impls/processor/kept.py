"""The schemas that state variables have had: kept beside a checkpoint, they let earlier rows be read.

A row written under the first schema of a variable is a JSON array, see `impls.processor.rows`. A row written under a
later schema has one byte before it: the number of that schema in the variable's history. So a change rewrites no row,
and rows of several schemas move together. Spark's `stateStore.encodingFormat=avro` allows the same changes: fields are
added (null in earlier rows), removed, reordered and widened.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import types as t

from impls.driver.journal import replace_bytes
from impls.errors import ADVICE, UsageError
from impls.operators.rowjson import each, nullable
from impls.processor.coerce import coercion
from impls.processor.encoding import Variable
from impls.processor.rows import StateRowCodec, row_maker

_One = Callable[[Any], Any]
LAST = ord("[") - 1  # a row of the first schema begins with [
_INTEGERS = (t.ByteType, t.ShortType, t.IntegerType, t.LongType)


@dataclass(frozen=True)
class History:
    """The schemas that a state variable has had.

    Attributes:
        schemas: of its rows, the first one first.
        current: place of the schema under which rows are written and given to the processor.
    """

    schemas: tuple[t.StructType, ...]
    current: int


class EvolvedRows(StateRowCodec):
    """Rows of a variable with a history to bytes and back.

    Args:
        history: of the variable; every schema of it can be read under the current one, see `converter`.
        where: whose rows they are, for errors.
    """

    def __init__(self, history: History, where: str = "A row"):
        super().__init__(history.schemas[history.current], where)
        self._history = history
        self._front = bytes([history.current]) if history.current else b""
        self._earlier: dict[int, tuple[StateRowCodec, _One | None]] = {}

    def encode(self, data: Any) -> bytes:
        """Returns a row as bytes; raises what `StateRowCodec.encode` raises."""
        return self._front + super().encode(data)

    def decode(self, raw: bytes) -> tuple[Any, ...]:
        """Returns a row, written under any schema of the history, as a tuple of the current one."""
        number, row = (raw[0], raw[1:]) if raw[0] <= LAST else (0, raw)
        if number == self._history.current:
            return super().decode(row)
        codec, convert = self._earlier.get(number) or self._reader(number)
        values = codec.decode(row)
        return values if convert is None else tuple(convert(values))

    def _reader(self, number: int) -> tuple[StateRowCodec, _One | None]:
        written = self._history.schemas[number]
        self._earlier[number] = StateRowCodec(written, self._where), converter(written, self.schema)
        return self._earlier[number]


def converter(written: t.DataType, wanted: t.DataType, field: str = "") -> _One | None:
    """Returns what makes a value of a wider type of one that was written, None where nothing has to be done.

    Raises:
        TypeError: the type is not as wide as that which was written; the message names the field.
    """
    if written.simpleString() == wanted.simpleString():
        return None
    if isinstance(written, t.StructType) and isinstance(wanted, t.StructType):
        return _fields(written, wanted, field)
    if isinstance(written, t.ArrayType) and isinstance(wanted, t.ArrayType):
        return each(nullable(converter(written.elementType, wanted.elementType, f"{field}[]")))
    if isinstance(written, t.MapType) and isinstance(wanted, t.MapType) and written.keyType == wanted.keyType:
        item = nullable(converter(written.valueType, wanted.valueType, f"{field}[]"))
        return lambda values: {key: item(value) for key, value in values.items()}
    return _widened(written, wanted, field)


def _fields(written: t.StructType, wanted: t.StructType, field: str) -> _One:
    """Returns what makes a row of a row, by the names of its fields; null where there was no such field."""
    places, row = {name: place for place, name in enumerate(written.names)}, row_maker(wanted.names)
    taken: list[tuple[int | None, _One]] = []
    for one in wanted.fields:
        path, place = f"{field}.{one.name}" if field else one.name, places.get(one.name)
        change = None if place is None else converter(written.fields[place].dataType, one.dataType, path)
        taken.append((place, nullable(change)))
    return lambda values: row([None if place is None else change(values[place]) for place, change in taken])


def _widened(written: t.DataType, wanted: t.DataType, field: str) -> _One | None:
    if isinstance(written, _INTEGERS):
        if isinstance(wanted, _INTEGERS) and _INTEGERS.index(type(wanted)) > _INTEGERS.index(type(written)):
            return None
        if isinstance(wanted, t.FloatType | t.DoubleType):
            fitted = coercion(wanted, field)
            return lambda number: fitted(float(number))
    if isinstance(written, t.FloatType) and isinstance(wanted, t.DoubleType):
        return None
    raise TypeError(f"its field {field} was {written.simpleString()} and is {wanted.simpleString()}")


_KEPT = "processor.json"
_PARTS: dict[str, type] = {"settings": dict, "variables": dict, "deleted": list}
_Kept = tuple[str, list[Any], str | None, bool]  # kind, schemas, schema of a map's keys, whether it expires


@dataclass(frozen=True)
class Kept:
    """What a checkpoint's state is made of when a processor runs on it; nothing is written before keep().

    Attributes:
        path: the file that says so.
        before: its content as it was read, None for no file.
        after: its content from the first epoch with this processor on.
        histories: of each variable with several schemas.
    """

    path: Path
    before: bytes | None
    after: bytes
    histories: dict[str, History]

    def keep(self) -> None:
        """Writes it; raises UsageError when another start has done so since, and StateError when it cannot."""
        found = self.path.read_bytes() if self.path.exists() else None
        if found == self.after:
            return
        if found != self.before:
            raise UsageError(f"Another start has changed {self.path} meanwhile: start the query again.")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        replace_bytes(self.path, self.after)


def check_kept(
    folder: Path, settings: Mapping[str, Any], variables: Mapping[str, Variable], deleted: Iterable[str] = ()
) -> Kept:
    """Returns what a checkpoint's state is made of from now on.

    Args:
        folder: of the checkpoint.
        settings: of the query.
        variables: those of the processor.
        deleted: names of variables that it deletes: bins without a record since then have rows of them.

    Raises:
        UsageError: the checkpoint was made with other settings, or with a variable whose rows cannot be read as the
            processor asks for them now, which new variables never cause; or the file that says so is damaged.
    """
    path = folder / _KEPT
    raw = path.read_bytes() if path.exists() else None
    new: dict[str, Any] = {"settings": dict(settings), "variables": {}, "deleted": []}
    kept = new if raw is None else _parsed(path, raw)
    for name, value in settings.items():
        if kept["settings"].get(name) != value:
            raise UsageError(f"The checkpoint {folder} was made with {name}={kept['settings'].get(name)}, not {value}.")
    histories = {}
    for name, variable in variables.items():
        now = _made(variable)
        before = _read(kept["variables"][name]) if name in kept["variables"] else now
        histories[name] = _continued(before, now, variable.subject, folder)
        keys = None if variable.key_schema is None else variable.key_schema.jsonValue()
        schemas = [schema.jsonValue() for schema in histories[name].schemas]
        kept["variables"][name] = [now[0], schemas, *now[2:], keys]
    kept["deleted"] = sorted({*kept["deleted"], *deleted} - variables.keys())
    several = {name: history for name, history in histories.items() if len(history.schemas) > 1}
    return Kept(path, raw, json.dumps(kept, indent=1).encode(), several)


@dataclass(frozen=True)
class KeptVariable:
    """A state variable as a checkpoint has it.

    Attributes:
        kind: value, list or map.
        history: the schemas of its rows; what is read becomes rows of the last one.
        keys: schema of the keys of a map's fields, None where there is none, or none was kept.
        expires: whether it has a time to live.
    """

    kind: str
    history: History
    keys: t.StructType | None
    expires: bool


def kept_settings(folder: Path) -> dict[str, Any]:
    """Returns the settings that a checkpoint was made with; raises UsageError as `kept_variables`."""
    return dict(_kept_in(folder)["settings"])


def deleted_variables(folder: Path) -> set[str]:
    """Returns the names of variables that are deleted, though bins have rows of them; raises as `kept_variables`."""
    return set(_kept_in(folder)["deleted"])


def _kept_in(folder: Path) -> dict[str, Any]:
    path = folder / _KEPT
    if not path.exists():
        raise UsageError(f"The file {path}, which has the state variables, is missing: {ADVICE}.")
    return _parsed(path, path.read_bytes())


def kept_variables(folder: Path) -> dict[str, KeptVariable]:
    """Returns the state variables that a checkpoint has; raises UsageError where the file is missing or damaged."""
    found = {}
    for name, variable in _kept_in(folder)["variables"].items():
        kind, schemas, _, expires = _read(variable)
        keys = variable[4] if len(variable) > 4 else None
        history = History(tuple(schemas), len(schemas) - 1)
        found[name] = KeptVariable(kind, history, None if keys is None else t.StructType.fromJson(keys), expires)
    return found


def _parsed(path: Path, raw: bytes) -> dict[str, Any]:
    try:
        kept = json.loads(raw)
        for variable in kept["variables"].values():
            _read(variable)
        return {part: kind(kept.get(part, ())) for part, kind in _PARTS.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"The file {path} is damaged: {ADVICE}.") from error


def _continued(before: _Kept, now: _Kept, which: str, folder: Path) -> History:
    """Returns the history of a variable with its schema of now, which is appended unless it has had it before."""
    if (before[0], *before[2:]) != (now[0], *now[2:]):
        raise UsageError(
            f"{which} was {_describe(before)} when the checkpoint {folder} was made, and is {_describe(now)} now: "
            "give it another name."
        )
    (schema,), schemas = now[1], before[1]
    texts = [earlier.simpleString() for earlier in schemas]
    if schema.simpleString() not in texts:
        texts, schemas = [*texts, schema.simpleString()], [*schemas, schema]
    if len(schemas) > LAST + 1:
        raise UsageError(f"{which} has had {LAST + 1} schemas, which is the most: give it another name.")
    for earlier in schemas:
        try:
            converter(earlier, schema)
        except TypeError as error:
            raise UsageError(
                f"{which} has rows of {earlier.simpleString()} in the checkpoint {folder}, which cannot be read as "
                f"{schema.simpleString()}: {error}. Fields may be added, removed, reordered and widened; for another "
                "change give the variable another name."
            ) from error
    return History(tuple(schemas), texts.index(schema.simpleString()))


def _made(variable: Variable) -> _Kept:
    keys = None if variable.key_schema is None else variable.key_schema.simpleString()
    return variable.kind, [variable.schema], keys, variable.ttl_ms is not None


def _read(kept: list[Any]) -> _Kept:
    """Returns what a file says of a variable."""
    kind, schemas, keys, expires, *_ = kept
    return kind, [t.StructType.fromJson(schema) for schema in schemas], keys, expires


def _describe(made: _Kept) -> str:
    kind, schemas, keys, expires = made
    schema = schemas[-1].simpleString()
    return f"a {kind} of {schema}{f' by {keys}' if keys else ''}{' with a time to live' if expires else ''}"
