"""Runs begun anew: what an earlier process has left goes; a run that was measured on a busy machine is made again."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from harness.experiment.description import Run
from harness.files import read_json
from harness.results.entry import ENTRY_FILE
from harness.run.runs import Watcher, run_all

__all__ = ["AGAIN", "begin_anew", "busy_runs", "until_quiet"]

AGAIN = 2  # times: a machine that is busy for three runs in a row will not be quiet soon
_KEPT = {"run.json", "run.log", "cell.json"}


def begin_anew(folder: Path) -> None:
    """Deletes what an earlier process of a run has left, its parameters and its log excepted."""
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name not in _KEPT:
            path.unlink()


def busy_runs(runs: Sequence[Run], folder: Path) -> list[Run]:
    """Returns the runs that are done and during which the machine was busy."""
    return [run for run in runs if read_json(folder / run.folder / ENTRY_FILE).get("machine") == "busy"]


def until_quiet(runs: Sequence[Run], folder: Path, view: Watcher, again: int) -> None:
    """Runs what is not done, and up to `again` times those runs anew during which the machine was busy.

    Raises:
        UsageError: a run was refused for bad input.
    """
    run_all(runs, folder, view)
    for number in range(1, again + 1):
        busy = busy_runs(runs, folder)
        if not busy:
            return
        names = ", ".join(run.folder for run in busy)
        view.note(f"The machine was busy during {names}: run anew, {number} of {again} times at most.")
        for run in busy:
            begin_anew(folder / run.folder)
        run_all(busy, folder, view)
