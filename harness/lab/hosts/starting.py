"""The start of a cluster's supervisor: its folder, its command, and the wait until its hosts are up."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

from harness.files import ROOT, read_json
from harness.lab.hosts.control import tell
from harness.lab.hosts.programs import HOST_VARIABLE
from harness.lab.hosts.settings import Settings
from harness.lab.waiting import wait_for
from impls.errors import UsageError

__all__ = ["await_start", "prepare", "runs", "supervisor_command", "supervisor_environment"]

_START_DEADLINE_S = 120.0


def prepare(folder: Path, settings: Settings) -> Path:
    """Makes a cluster's folder and returns its absolute path; raises UsageError where a cluster runs in it."""
    folder = folder.absolute()
    if runs(folder):
        raise UsageError(f"A cluster runs in {folder} already: ./inv cluster.stop ends it.")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cluster.json").unlink(missing_ok=True)
    settings.write(folder / "settings.json")
    return folder


def runs(folder: Path) -> bool:
    """Returns whether a supervisor answers in a folder."""
    try:
        tell(folder, do="status")
    except UsageError:
        return False
    return True


def supervisor_command(folder: Path) -> list[str | Path]:
    """Returns the command of the supervisor of the cluster in a folder."""
    return [sys.executable, "-m", "harness.lab.hosts.supervisor", folder]


def supervisor_environment(folder: Path) -> dict[str, str]:
    """Returns the environment in which a supervisor finds this project, with the mark of its cluster."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    mark = {HOST_VARIABLE: f"{folder}#supervisor"}
    return {**os.environ, "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)), **mark}


def await_start(folder: Path, ended: Callable[[], int | None]) -> None:
    """Returns when the cluster is up, or has told why it is not; raises UsageError when it ended without a word."""
    told = folder / "cluster.json"
    wait_for(lambda: told.exists() or ended() is not None, "the cluster to come up", _START_DEADLINE_S)
    if not read_json(told):
        last = (folder / "supervisor.log").read_text(errors="replace").strip().splitlines()[-1:]
        raise UsageError(f"The cluster did not come up: {(last or ['it said nothing'])[0]}")
