"""Hosts that are loopback addresses: they share network, files and processes, and need no rights."""

from pathlib import Path

from harness import guard
from harness.lab.hosts.netem import Netem
from harness.lab.hosts.network import Launch, Network, Process
from impls.errors import UsageError

__all__ = ["Loopback"]

_NEEDS_ROOT = "needs hosts in namespaces of their own, and these have loopback addresses: start the cluster as root."


class Loopback(Network):
    """Every host is 127.0.0.N; master and driver are 127.0.0.1."""

    master = driver = "127.0.0.1"

    def __init__(self, folder: Path):
        self._folder = folder

    def address(self, number: int) -> str:
        """Returns 127.0.0.2 for host 1."""
        return f"127.0.0.{number + 1}"

    def start_master(self, launch: Launch) -> Process:
        """Starts the master's program behind a guard."""
        return _start(launch)

    def start_host(self, number: int, launch: Launch) -> Process:
        """Starts the program of a host behind a guard."""
        return _start(launch)

    def cut(self, number: int, *, off: bool) -> None:
        """Raises UsageError."""
        raise UsageError(f"To cut a host off {_NEEDS_ROOT}")

    def disturb(self, netem: Netem) -> None:
        """Raises UsageError."""
        raise UsageError(f"To slow the network {_NEEDS_ROOT}")

    def work_dir(self, number: int) -> Path:
        """Returns the folder in which all hosts' own folders are."""
        return self._folder / "hosts" / str(number)


def _start(launch: Launch) -> Process:
    with launch.log.open("wb") as log:
        return guard.spawn(launch.command, stdout=log, stderr=log, env=launch.env)
