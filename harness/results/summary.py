"""Writes result.json of an experiment from the folders of its runs, and checks it against its schema."""

import json
from pathlib import Path
from typing import Any

import jsonschema
from jsonschema.exceptions import best_match

from harness.experiment.parameters import PARAMETERS
from harness.files import read_json, write_json
from harness.results.entry import ENTRY_FILE, run_entry
from harness.results.machine import describe_machine
from harness.results.place import FAILURE_FILE
from harness.results.runfiles import RunFiles
from impls.errors import UsageError

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


CELL_FILE = "cell.json"  # what distinguishes a run of a sweep from the others


def write_result(folder: Path) -> dict[str, Any]:
    """Writes and returns result.json: experiment.json and the entries of all runs that began, in order.

    A run that was cut off or failed is in it with verdict unknown and the reason; one that never began is not.

    Raises:
        ValueError: a file is broken; the message names it.
    """
    described = read_json(folder / "experiment.json")
    here = described.pop("environment", None) or describe_machine(int(described.get("seed", 0)))
    runs = [_entry(run) for run in sorted((folder / "runs").iterdir()) if _began(run)]
    result = {"schema": SCHEMA, "experiment": described, "environment": here, "runs": runs}
    write_json(folder / "result.json", result)
    return result


def _began(run: Path) -> bool:
    return any((run / name).exists() for name in ("load.json", FAILURE_FILE, ENTRY_FILE))


def _entry(run: Path) -> dict[str, Any]:
    entry = read_json(run / ENTRY_FILE) or run_entry(RunFiles(run))
    cell = read_json(run / CELL_FILE)
    return {**entry, "cell": cell} if cell else entry
