"""The end of a cluster that somebody else has started, and what is deleted after it."""

import shutil
from contextlib import suppress
from pathlib import Path

from harness.lab.hosts.control import tell
from harness.lab.hosts.marked import processes_of
from harness.lab.processes import kill_all
from harness.lab.waiting import wait_for
from impls.errors import StateError, UsageError

__all__ = ["end_all", "forget"]

_GRACE_S = 15.0


def end_all(folder: Path) -> None:
    """Ends every process of the cluster in a folder, also when its supervisor does not answer any more.

    Raises:
        UsageError: there is no cluster.
    """
    if not processes_of(folder):
        raise UsageError(f"No cluster runs in {folder}.")
    with suppress(UsageError, StateError):
        tell(folder, do="stop")
        wait_for(lambda: not processes_of(folder), "the cluster to end", _GRACE_S)
    kill_all([process.pid for process in processes_of(folder)])


def forget(folder: Path) -> None:
    """Deletes what the hosts of an ended cluster have kept, their logs excepted, and its address."""
    for name in ("cluster.json", "control"):
        (folder / name).unlink(missing_ok=True)
    for kept in [*folder.glob("hosts/*/state"), *folder.glob("hosts/*/local"), folder / "state", folder / "here"]:
        shutil.rmtree(kept, ignore_errors=True)
