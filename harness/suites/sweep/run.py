"""Runs a sweep: finished runs are skipped, and a run that was cut off is measured again."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.files import ROOT
from harness.options.ending import ending
from harness.report.comparison import print_comparison
from harness.results.place import find_earlier, new_folder, unchanged
from harness.run.lines import Lines
from harness.run.runs import check_machine
from harness.setup.jars import ensure_jars
from harness.suites.runs import prepare_runs, run_and_report
from harness.suites.sweep.grid import Grid, make_grid

__all__ = ["grid_from", "prepare", "run_sweep", "sweep"]


def prepare(grid: Grid, folder: Path) -> None:
    """Makes the folders of the runs that are not done, with what each has to do; keeps those that are."""
    prepare_runs(grid, grid.runs(), folder, grid.base.seed)


def sweep(grid: Grid, output: Path, *, force: bool = False, again: int = 0) -> tuple[Path, int]:
    """Runs a sweep and returns (result folder, exit code): 0 all valid, 1 not all, 130 cut off.

    A run during which the machine was busy is made anew `again` times at most.

    The newest unfinished result of the same sweep is gone on with; a finished one of the same code is returned.
    """
    finished = None if force else find_earlier(grid, output, finished=True)
    if finished is not None and unchanged(finished):
        return finished, 0
    begun = None if force else find_earlier(grid, output, finished=False)
    folder = begun or new_folder(output, grid.name)
    prepare(grid, folder)
    runs = [run for run, _ in grid.runs()]
    view = Lines(len(runs), sys.stdout)
    done = sum((folder / "runs" / run.folder / "done").exists() for run in runs)
    view.note(f"{grid.name}: {len(runs)} runs, {done} done before, about {grid.minutes():.0f} min for all of them")
    return folder, run_and_report(runs, folder, view, "the same options again go on", anew=again)


def grid_from(options: Mapping[str, Any]) -> Grid:
    """Returns the grid that the options of `./inv sweep` describe; raises UsageError for bad ones."""
    own = {"preset", "quick", "output", "force"}
    given = {name: value for name, value in options.items() if name not in own}
    return make_grid(given, preset=str(options.get("preset") or ""), quick=bool(options.get("quick")))


@ending()
def run_sweep(options: Mapping[str, Any]) -> int:
    """Runs a sweep, prints its comparison and the path of its result as the last line, and returns the exit code."""
    grid = grid_from(options)
    output = Path(options.get("output") or ROOT / "results")
    largest = max((run.experiment for run, _ in grid.runs()), key=lambda e: e.keys * e.rate)
    check_machine(largest, output)
    ensure_jars()
    folder, code = sweep(grid, output, force=bool(options.get("force")))
    print_comparison(folder)
    sys.stdout.write(f"{folder}\n")
    return code
