"""Carries a sweep out: what is done is skipped, what was cut off in the middle is measured anew."""

import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.files import ROOT, write_json
from harness.options import CUT_OFF
from harness.options.ending import ending
from harness.report.comparison import print_comparison
from harness.report.report import write_report
from harness.results.environment import environment
from harness.results.place import find_earlier, making, new_folder, unchanged
from harness.results.summary import CELL_FILE, write_result
from harness.run.carry_out import carry_out_all
from harness.run.lines import Lines
from harness.run.machine import check_machine
from harness.setup.jars import ensure_jars
from harness.suites.sweep.grid import Grid, make_grid
from plots.figures import write_all

__all__ = ["grid_from", "prepare", "run_sweep", "sweep"]


def prepare(grid: Grid, folder: Path) -> None:
    """Makes the folders of the runs that are not done, with what each has to do; keeps those that are."""
    with making(folder):
        for run, cell in grid.runs():
            place = folder / "runs" / run.folder
            if (place / "done").exists():
                continue
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir(parents=True)
            write_json(place / "run.json", run.to_json())
            write_json(place / CELL_FILE, cell)
        here = environment(grid.base.seed)
        if not (folder / "experiment.json").exists():
            write_json(folder / "experiment.json", {**grid.to_json(), "digest": grid.digest(), "environment": here})


def sweep(grid: Grid, output: Path, *, force: bool = False) -> tuple[Path, int]:
    """Carries a sweep out and returns (result folder, exit code): 0 all valid, 1 not all, 130 cut off.

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
    cut_off = False
    try:
        carry_out_all(runs, folder / "runs", view)
    except KeyboardInterrupt:
        cut_off = True
        view.note("cut off; the same options again go on")
    result = write_result(folder)
    write_all(folder)
    write_report(folder, drawn=True)
    if all((folder / "runs" / run.folder / "done").exists() for run in runs):
        (folder / "done").touch()
    bad = [run for run in result["runs"] if run["verdict"] != "valid"]
    return folder, CUT_OFF if cut_off else int(bool(bad))


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
