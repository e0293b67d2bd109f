"""The site of a fault test on a cluster: hosts on this machine, of which some are lost and come back."""

import contextlib
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.experiment.description import Experiment
from harness.lab.bringup import embedded_broker
from harness.lab.hosts.cluster import Cluster, Host, cluster
from harness.suites.faults.schedule import Fault
from harness.suites.faults.shared import Shared
from harness.suites.faults.site import Site
from impls.driver.control import ask
from impls.errors import UsageError

__all__ = ["HostSite"]

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
        self.shared = Shared(self.checkpoint)

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
