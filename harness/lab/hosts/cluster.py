"""A cluster of hosts for a test, a run or a user: started, looked at, disturbed and stopped from Python."""

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from harness import guard
from harness.files import ROOT, read_json
from harness.lab.hosts.control import tell
from harness.lab.hosts.isolated import can_isolate
from harness.lab.hosts.programs import HOST_VARIABLE, executors_of, processes_of, worker_of
from harness.lab.hosts.settings import Settings
from harness.lab.processes import kill_all
from harness.lab.waiting import wait_for
from impls.errors import StateError, UsageError

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


_END_S = 15.0


def end_all(folder: Path) -> None:
    """Ends every process of the cluster in a folder, also when its supervisor does not answer any more.

    Raises:
        UsageError: there is no cluster.
    """
    if not processes_of(folder):
        raise UsageError(f"No cluster runs in {folder}.")
    with suppress(UsageError, StateError):
        tell(folder, do="stop")
        wait_for(lambda: not processes_of(folder), "the cluster to end", _END_S)
    kill_all([process.pid for process in processes_of(folder)])


def forget(folder: Path) -> None:
    """Deletes what the hosts of an ended cluster have kept, their logs excepted, and its address."""
    for name in ("cluster.json", "control"):
        (folder / name).unlink(missing_ok=True)
    for kept in [*folder.glob("hosts/*/state"), *folder.glob("hosts/*/local"), folder / "state", folder / "here"]:
        shutil.rmtree(kept, ignore_errors=True)


_END_DEADLINE_S = 30.0
_GRACE_S = 10.0


@dataclass(frozen=True)
class Host:
    """A host as it was when it was asked for.

    Attributes:
        number: from 1.
        address: by which Spark and the other hosts know it.
        state: up, cut off or gone.
        folder: of the cluster.
        settings: what the cluster was to be.
    """

    number: int
    address: str
    state: str
    folder: Path
    settings: Settings

    @property
    def worker(self) -> int | None:
        """Process id of its Spark worker, None where that is gone."""
        return worker_of(self.folder, self.number)

    @property
    def executors(self) -> list[int]:
        """Process ids of its executors."""
        return executors_of(self.folder, self.number)

    @property
    def processes(self) -> list[psutil.Process]:
        """All of its processes."""
        return processes_of(self.folder, self.number)

    @property
    def state_dir(self) -> Path:
        """The folder of its state as this process sees it; one in memory is gone with the host.

        Hosts on loopback addresses share one; a run keeps them apart by the hosts' names.
        """
        if not self.settings.isolated:
            return self.folder / "state"
        if not self.settings.disk:
            return self.folder / "hosts" / str(self.number) / "state"
        return Path(f"/proc/{self.worker}/root{self.folder}/state")


class Cluster:
    """A cluster that runs.

    Attributes:
        folder: its logs and the hosts' folders.
        master: address of the Spark master.
        driver: address of this machine as hosts reach it: for broker and driver.
        state_dir: a path that is each host's own folder on that host.
        settings: what it was to be.
    """

    def __init__(self, folder: Path):
        """Finds the cluster that runs in a folder; raises UsageError when none has come up there."""
        self.folder = folder
        told = read_json(folder / "cluster.json")
        if "error" in told:
            raise UsageError(str(told["error"]))
        if not told:
            raise UsageError(f"There is no cluster in {folder}.")
        self.settings = Settings.read(folder / "settings.json")
        self.master, self.driver = str(told["master"]), str(told["driver"])
        self.state_dir = folder / "state"

    @property
    def hosts(self) -> list[Host]:
        """All hosts that are not gone, by number."""
        return [host for host in self.all_hosts() if host.state != "gone"]

    def all_hosts(self) -> list[Host]:
        """Returns every host there ever was, by number."""
        told = tell(self.folder, do="status")
        return [Host(**each, folder=self.folder, settings=self.settings) for each in told]

    def add_host(self) -> Host:
        """Starts a host and returns it when it belongs to the cluster."""
        number = tell(self.folder, do="add")
        return next(host for host in self.hosts if host.number == number)

    def remove_host(self, host: Host) -> None:
        """Ends a host and all of its processes, and returns when they are gone."""
        tell(self.folder, do="remove", host=host.number)
        wait_for(lambda: not host.processes, f"host {host.number} to end", _END_DEADLINE_S)

    def kill_host(self, host: Host) -> None:
        """Ends a host as a cut of its power would: nothing is said to anybody (isolated hosts), or as -9 does."""
        if self.settings.isolated:
            self.cut_off(host)
            self.remove_host(host)
        else:
            kill_all([one.pid for one in host.processes])

    def kill_executor(self, host: Host) -> list[int]:
        """Kills the executors of a host with -9 and returns their process ids; Spark starts others there."""
        killed = host.executors
        if not killed:
            raise UsageError(f"Host {host.number} has no executor.")
        kill_all(killed)
        return killed

    def fill_disk(self, host: Host) -> Path:
        """Fills a host's state folder to the last byte, and returns the file to delete for space again.

        Raises:
            UsageError: the folder has no size of its own.
        """
        if not host.settings.disk:
            raise UsageError("The disk of a host can be filled where it has a size: start the cluster with disk=.")
        filler, zeros = host.state_dir / ".full", bytes(1 << 20)
        with filler.open("wb", buffering=0) as out, suppress(OSError):
            while out.write(zeros):
                pass
        return filler

    def cut_off(self, host: Host) -> None:
        """Cuts an isolated host off from the network; nothing on it ends, and nobody is told."""
        tell(self.folder, do="cut", host=host.number, off=True)

    def reconnect(self, host: Host) -> None:
        """Connects a host that was cut off."""
        tell(self.folder, do="cut", host=host.number, off=False)

    def disturb(self, netem: str) -> None:
        """Changes what the network does to packets from now on, see `parse_netem`; "" nothing any more."""
        tell(self.folder, do="disturb", netem=netem)


@contextmanager
def cluster(
    hosts: int = 2, *, folder: Path | None = None, isolated: bool | None = None, **settings: Any
) -> Iterator[Cluster]:
    """Starts a cluster and ends it, with everything of it; it ends with this process too, however that ends.

    Args:
        hosts: their number.
        folder: for its logs and the hosts' state, which stay there; a temporary one by default.
        isolated: each host in namespaces of its own (needs root); by default where that can be done.
        settings: further fields of `Settings`.

    Raises:
        UsageError: it does not come up, or cannot be had on this machine.
    """
    with ExitStack() as stack:
        if folder is None:
            folder = Path(tempfile.mkdtemp(prefix="rescale-cluster-"))
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
        own = can_isolate() if isolated is None else isolated
        folder = prepare(folder, Settings(hosts, isolated=own, **settings))
        with (folder / "supervisor.log").open("wb") as log:
            process = guard.spawn(
                supervisor_command(folder), stdout=log, stderr=log, grace_s=_GRACE_S, env=supervisor_environment(folder)
            )
        stack.callback(process.stop)
        await_start(folder, process.poll)
        yield Cluster(folder)
