"""Writes result.json of an experiment from the folders of its runs."""

from pathlib import Path
from typing import Any

from harness.files import read_json, write_json
from harness.results.entry import ENTRY_FILE, RunFiles, run_entry, summarise_run
from harness.results.failure import FAILURE_FILE
from harness.results.machine import describe_machine
from harness.results.validate import SCHEMA

__all__ = ["CELL_FILE", "summarise_run", "write_result"]

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
