"""What a checkpoint's state is made of, kept beside it: another start with other variables is refused."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql.types import StructType

from impls.errors import UsageError
from impls.processor.encoding import Variable

__all__ = ["check_kept"]

_KEPT = "processor.json"


def check_kept(folder: Path, settings: Mapping[str, Any], variables: Mapping[str, Variable]) -> None:
    """Keeps what a checkpoint's state is made of, and refuses what it cannot go on with: new variables are none."""
    now = {
        name: [made.kind, made.schema.simpleString(), _text(made.key_schema), made.ttl_ms is not None]
        for name, made in variables.items()
    }
    path = folder / _KEPT
    kept = json.loads(path.read_text()) if path.exists() else {"settings": dict(settings), "variables": {}}
    for name, value in settings.items():
        if kept["settings"].get(name) != value:
            raise UsageError(f"The checkpoint {folder} was made with {name}={kept['settings'].get(name)}, not {value}.")
    for name, made in now.items():
        if kept["variables"].get(name, made) != made:
            raise UsageError(
                f"The state variable {name} was {_said(kept['variables'][name])} when the checkpoint {folder} was "
                f"made, and is {_said(made)} now: give it another name."
            )
    folder.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    new.write_text(json.dumps({**kept, "variables": {**kept["variables"], **now}}, indent=1))
    new.replace(path)


def _said(made: list[Any]) -> str:
    kind, schema, keys, expires = made
    return f"a {kind} of {schema}{f' by {keys}' if keys else ''}{' with a time to live' if expires else ''}"


def _text(schema: StructType | None) -> str | None:
    return None if schema is None else schema.simpleString()
