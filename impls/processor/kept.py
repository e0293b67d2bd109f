"""What a checkpoint's state is made of, kept beside it, with every schema that a state variable has had."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql.types import StructType

from impls.errors import UsageError
from impls.processor.encoding import Variable
from impls.processor.evolution import LAST, History, converter

__all__ = ["check_kept"]

_KEPT = "processor.json"
_Kept = tuple[str, list[Any], str | None, bool]  # kind, schemas, schema of a map's keys, whether it expires


def check_kept(folder: Path, settings: Mapping[str, Any], variables: Mapping[str, Variable]) -> dict[str, History]:
    """Keeps what a checkpoint's state is made of, and returns the history of each variable with several schemas.

    Raises:
        UsageError: the checkpoint was made with other settings, or with a variable whose rows cannot be read as the
            processor asks for them now; new variables are allowed.
    """
    path = folder / _KEPT
    kept = json.loads(path.read_text()) if path.exists() else {"settings": dict(settings), "variables": {}}
    for name, value in settings.items():
        if kept["settings"].get(name) != value:
            raise UsageError(f"The checkpoint {folder} was made with {name}={kept['settings'].get(name)}, not {value}.")
    histories = {}
    for name, variable in variables.items():
        now = _made(variable)
        before = _read(kept["variables"][name], now) if name in kept["variables"] else now
        histories[name] = _continued(before, now, variable.subject, folder)
        kept["variables"][name] = [now[0], [schema.jsonValue() for schema in histories[name].schemas], *now[2:]]
    folder.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    new.write_text(json.dumps(kept, indent=1))
    new.replace(path)
    return {name: history for name, history in histories.items() if len(history.schemas) > 1}


def _continued(before: _Kept, now: _Kept, which: str, folder: Path) -> History:
    """Returns the history of a variable with its schema of now, which is appended unless it has had it before."""
    if (before[0], *before[2:]) != (now[0], *now[2:]):
        raise UsageError(
            f"{which} was {_said(before)} when the checkpoint {folder} was made, and is {_said(now)} now: "
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


def _read(kept: list[Any], now: _Kept) -> _Kept:
    """Returns what a file says of a variable; it had one schema once, as text, which Spark may have to parse."""
    kind, schemas, keys, expires = kept
    if isinstance(schemas, str):
        (schema,) = now[1]
        return kind, [schema if schemas == schema.simpleString() else StructType.fromDDL(schemas)], keys, expires
    return kind, [StructType.fromJson(schema) for schema in schemas], keys, expires


def _said(made: _Kept) -> str:
    kind, schemas, keys, expires = made
    schema = schemas[-1].simpleString()
    return f"a {kind} of {schema}{f' by {keys}' if keys else ''}{' with a time to live' if expires else ''}"
