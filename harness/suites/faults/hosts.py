"""The site of a fault test on a cluster: hosts on this machine, of which some are lost and come back."""

import contextlib
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.experiment.description import Experiment
from harness.lab.bringup import embedded_broker
from harness.lab.hosts.cluster import Cluster, Host, cluster
from harness.lab.processes import lives
from harness.suites.faults.schedule import Fault
from harness.suites.faults.site import Site
from harness.suites.faults.storage import succeeds
from impls.driver.control import ask
from impls.errors import UsageError

_SIZE_BYTES = 1 << 30  # of a sparse file
_FROZEN_S, _THAWED_S = 0.3, 0.05  # of a slow one
_DEADLINE_S = 30.0


class LoopFileSystem:
    """An ext4 file system in a file beside its folder; `mounted` says whether that was permitted."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._image = folder.with_name(f"{folder.name}.ext4")
        self.mounted = False

    def mount(self) -> None:
        """Makes and mounts it if this user may; otherwise the folder is a folder."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._image.open("wb") as image:
            image.truncate(_SIZE_BYTES)
        made = succeeds("mkfs.ext4", "-q", "-F", "-O", "^has_journal", self._image)
        self.mounted = made and succeeds("mount", "-o", "loop", self._image, self.folder)

    def unmount(self) -> None:
        """Unmounts it, whoever still has files open on it."""
        if self.mounted:
            succeeds("umount", "-l", self.folder)
        self.mounted = False
        self._image.unlink(missing_ok=True)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Nothing can be written to it meanwhile: who tries waits."""
        self._freeze()
        try:
            yield
        finally:
            self._thaw()

    @contextmanager
    def slow(self) -> Iterator[None]:
        """Who writes to it meanwhile waits for a third of a second again and again."""
        end = threading.Event()

        def pump() -> None:
            while not end.wait(_THAWED_S):
                self._freeze()
                end.wait(_FROZEN_S)
                self._thaw()

        thread = threading.Thread(target=pump, daemon=True)
        thread.start()
        try:
            yield
        finally:
            end.set()
            thread.join(_DEADLINE_S)

    @contextmanager
    def gone_on(self, pids: list[int]) -> Iterator[None]:
        """An empty folder that cannot be written stands in its place on the hosts of some processes meanwhile."""
        # By their own process namespace too: the /proc that is mounted there has no entry of this one.
        there = {pid: ("nsenter", f"--target={pid}", "--mount", "--pid", "--") for pid in pids}
        for enter in there.values():
            _must(*enter, "mount", "-t", "tmpfs", "-o", "ro,size=4k", "gone", self.folder)
        try:
            yield
        finally:
            for pid, enter in there.items():
                if lives(pid):
                    _must(*enter, "umount", "-l", self.folder)

    def _freeze(self) -> None:
        _must("fsfreeze", "--freeze", self.folder)

    def _thaw(self) -> None:
        _must("fsfreeze", "--unfreeze", self.folder)


def _must(*command: str | Path) -> None:
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=_DEADLINE_S)
    if done.returncode:
        raise UsageError(f"{command[0]} failed: {done.stderr.strip() or done.returncode}")


_CORES = 2
_DISK = "64m"
_WHOLE_DEADLINE_S = 90.0


class HostSite(Site):
    """A site whose query runs on hosts; `whole` gives it its number of hosts again.

    Attributes:
        cluster: the cluster, once the site has started.
        shared: the file system of the checkpoint.
    """

    cluster: Cluster
    start_deadline_s = 240.0  # a JVM for each host, and the imports of each Python worker on it

    def __init__(self, folder: Path, mechanism: str, *, seed: int, durability: str, hosts: int):
        super().__init__(folder, mechanism, seed=seed, durability=durability)
        self._number, self._disk = hosts, ""
        self._lasts = contextlib.ExitStack()
        self.shared = LoopFileSystem(self.checkpoint)

    def prepare(self, faults: list[Fault]) -> None:
        """Gives the hosts small disks if one is to be full, and the checkpoint a file system that can fail."""
        if any(fault.victim == "disk" for fault in faults):
            self._disk = _DISK
        if any(fault.victim == "checkpoint" for fault in faults):
            self.shared.mount()
            self._lasts.callback(self.shared.unmount)

    def start(self) -> None:
        """Starts the hosts, then broker, load and query, and returns when the first records are applied."""
        folder = self.folder / "cluster"
        running = cluster(self._number, folder=folder, cores=_CORES, disk=self._disk)
        self.cluster = self._lasts.enter_context(running)
        self.broker = embedded_broker(self.folder / "broker", host=self.cluster.driver)
        super().start()

    @property
    def hosts(self) -> list[Host]:
        """The hosts that are up, by number."""
        return [host for host in self.cluster.hosts if host.state == "up"]

    def whole(self) -> None:
        """Returns when there are as many hosts as there were, all with a place for workers; starts what is missing."""
        for _ in range(self._number - len(self.hosts)):
            self.cluster.add_host()
        wanted = {host.address for host in self.hosts}
        self.await_true(lambda: wanted <= self._seated(), "all hosts to have a place for workers", _WHOLE_DEADLINE_S)

    def homes(self) -> dict[int, str]:
        """Returns the host of each worker's state; raises UsageError when the query does not answer."""
        hosts = ask(self.checkpoint, {"do": "status"})["hosts"]
        return {worker: host for host, workers in hosts.items() for worker in workers}

    def close(self) -> None:
        """Ends every process that still runs."""
        with self._lasts:
            super().close()

    def _seated(self) -> set[str]:
        with contextlib.suppress(UsageError):
            return set(ask(self.checkpoint, {"do": "status"})["hosts"])
        return set()

    def _experiment(self) -> Experiment:
        where: dict[str, Any] = {"master": self.cluster.master, "state_dir": str(self.cluster.state_dir)}
        return replace(super()._experiment(), **where)
