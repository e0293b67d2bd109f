"""Checks a result.json against the schema of this version."""

import json
from pathlib import Path
from typing import Any

import jsonschema
from jsonschema.exceptions import best_match

from harness.experiment.parameters import PARAMETERS
from impls.errors import UsageError

__all__ = ["SCHEMA", "read_schema", "validate"]

SCHEMA = 1
_SCHEMA_FILE = Path(__file__).with_name("schema.json")


def read_schema() -> dict[str, Any]:
    """Returns the JSON Schema of result.json, with that of every parameter of an experiment."""
    schema: dict[str, Any] = json.loads(_SCHEMA_FILE.read_text(encoding="utf-8"))
    schema["properties"]["experiment"]["properties"] = {option.field: option.schema() for option in PARAMETERS}
    return schema


def validate(path: Path) -> dict[str, Any]:
    """Returns the result in a file, or in a result folder.

    Raises:
        UsageError: it cannot be read, is of another schema version, or does not obey the schema.
    """
    file = path / "result.json" if path.is_dir() else path
    try:
        result: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"The result {file} cannot be read ({error.strerror}): name a result folder.") from error
    except ValueError as error:
        raise UsageError(f"The result {file} is not JSON ({error}): make it anew.") from error
    version = result.get("schema") if isinstance(result, dict) else None
    if version != SCHEMA:
        said = "names no schema version" if version is None else f"has schema version {version!r}"
        raise UsageError(
            f"The result {file} {said}, and this program reads version {SCHEMA}: use the version that wrote it."
        )
    worst = best_match(jsonschema.Draft202012Validator(read_schema()).iter_errors(result))
    if worst is not None:
        raise UsageError(f"The result {file} breaks the schema at {worst.json_path}: {worst.message}.")
    return result
