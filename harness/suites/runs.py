"""The runs of one result: their folders, their execution, their report."""

import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.experiment.description import Run
from harness.files import write_json
from harness.options import CUT_OFF
from harness.report.report import write_report
from harness.results.machine import describe_machine
from harness.results.place import Described, making
from harness.results.summary import CELL_FILE, write_result
from harness.run.runs import Watcher, until_quiet
from impls.errors import UsageError
from plots.figures import write_all

__all__ = ["place_run", "prepare_runs", "run_and_report"]


def place_run(run: Run, folder: Path, cell: Mapping[str, Any] | None = None) -> None:
    """Makes a new folder for a run with its description, in a sweep with its cell too; one that is done is kept."""
    place = folder / run.folder
    if (place / "done").exists():
        return
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    write_json(place / "run.json", run.to_json())
    if cell is not None:
        write_json(place / CELL_FILE, cell)


def prepare_runs(
    described: Described, runs: Iterable[tuple[Run, Mapping[str, Any] | None]], folder: Path, seed: int
) -> None:
    """Makes the folders of runs, each with its cell or None, and experiment.json where it is missing.

    Raises:
        UsageError: a folder cannot be made.
    """
    with making(folder):
        for run, cell in runs:
            place_run(run, folder / "runs", cell)
        if not (folder / "experiment.json").exists():
            about = {"digest": described.digest(), "environment": describe_machine(seed)}
            write_json(folder / "experiment.json", {**described.to_json(), **about})


def run_and_report(runs: Sequence[Run], folder: Path, view: Watcher, again: str, *, anew: int = 0) -> int:
    """Runs what is not done, draws and reports all of it; returns 0 all valid, 1 not all, 130 cut off.

    Args:
        runs: those of the result, in this order.
        folder: the result's folder; it is marked as done when every run is.
        view: receives what happens.
        again: the sentence for whoever cuts it off.
        anew: how often a run during which the machine was busy is made again; then it stays marked.

    Raises:
        UsageError: a run was refused for bad input.
    """
    cut_off = False
    try:
        until_quiet(runs, folder / "runs", view, anew)
    except UsageError:
        _report(folder)
        raise
    except KeyboardInterrupt:
        cut_off = True
        view.note(f"cut off; {again}")
    view.note("drawing")
    result = _report(folder)
    if all((folder / "runs" / run.folder / "done").exists() for run in runs):
        (folder / "done").touch()
    bad = [run for run in result["runs"] if run["verdict"] != "valid"]
    return CUT_OFF if cut_off else int(bool(bad))


def _report(folder: Path) -> dict[str, Any]:
    """Writes result.json, figures and report of a result folder; returns the first."""
    result = write_result(folder)
    write_all(folder)
    write_report(folder, drawn=True)
    return result
