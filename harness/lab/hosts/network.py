"""How hosts are made different from one another; as loopback addresses, which need no rights."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from harness import guard
from harness.lab.hosts.settings import Netem
from impls.errors import UsageError


class Process(Protocol):
    """A program that runs on a host."""

    def poll(self) -> int | None:
        """Returns its exit code, None while it runs."""

    def stop(self) -> int:
        """Ends it and everything that it has started, and returns its exit code."""


@dataclass(frozen=True)
class Launch:
    """A program to start: its command, its environment and the file for what it says."""

    command: Sequence[str]
    env: Mapping[str, str]
    log: Path


class Network(ABC):
    """Hosts by number, from 1, and their master; `driver` is the address by which hosts reach what is not one of them.

    Every method raises UsageError with one sentence for what this machine does not allow.
    """

    master: str
    driver: str

    @abstractmethod
    def address(self, number: int) -> str:
        """Returns a host's address."""

    @abstractmethod
    def start_master(self, launch: Launch) -> Process:
        """Starts the master's program."""

    @abstractmethod
    def start_host(self, number: int, launch: Launch) -> Process:
        """Makes a host and starts its program there; the host ends with it."""

    @abstractmethod
    def cut(self, number: int, *, off: bool) -> None:
        """Cuts a host off from the network, or connects it again."""

    @abstractmethod
    def disturb(self, netem: Netem) -> None:
        """Changes what the network does to packets from now on."""

    @abstractmethod
    def work_dir(self, number: int) -> Path:
        """Returns the folder of a host's own things as the host sees it."""


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
