"""A cluster of hosts before it starts: its size, and its network in the words of `tc netem`."""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

from harness import guard
from impls.errors import UsageError

HOSTS_MOST = 64  # of a cluster on one machine
_TIME = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
_RATE = {"kbit": 1e3 / 8, "mbit": 1e6 / 8, "gbit": 1e9 / 8}
_DELAY_MOST_S = 10.0
_FORM = "'delay 2ms 1ms loss 0.1% rate 1gbit', in this order, and what is not wanted left out"
_NUMBER = r"\d+(?:\.\d+)?"
_WORDS = re.compile(
    rf"(?:delay (?P<delay>{_NUMBER}(?:us|ms|s))(?: (?P<jitter>{_NUMBER}(?:us|ms|s)))?)?"
    rf"(?:(?:^| )loss (?P<loss>{_NUMBER})%)?(?:(?:^| )rate (?P<rate>{_NUMBER}(?:kbit|mbit|gbit)))?"
)


@dataclass(frozen=True, slots=True)
class Netem:
    """What happens to a packet: it waits `delay_s` plus or minus up to `jitter_s`, is lost with the probability `loss`.

    `rate` is the bytes per second that pass at most, 0 for no limit.
    """

    delay_s: float = 0.0
    jitter_s: float = 0.0
    loss: float = 0.0
    rate: float = 0.0


def parse_netem(text: str) -> Netem:
    """Reads 'delay 2ms 1ms loss 0.1% rate 1gbit', of which each part may be left out; raises UsageError for others."""
    match = _WORDS.fullmatch(" ".join(text.split()))
    if match is None:
        raise UsageError(f"The network {text!r} cannot be read: give it as netem has it, {_FORM}.")
    delay_s, jitter_s = (_seconds(match[name]) for name in ("delay", "jitter"))
    netem = Netem(delay_s, jitter_s, float(match["loss"] or 0) / 100, _bytes_per_s(match["rate"]))
    if delay_s > _DELAY_MOST_S or jitter_s > delay_s or netem.loss > 1:
        raise UsageError(
            f"The network {text!r} cannot be: a delay is at most {_DELAY_MOST_S:.0f} s, jitter at most the delay, and "
            "a loss at most 100%."
        )
    return netem


def _seconds(text: str | None) -> float:
    return _value(text, _TIME)


def _bytes_per_s(text: str | None) -> float:
    return _value(text, _RATE)


def _value(text: str | None, units: dict[str, float]) -> float:
    if text is None:
        return 0.0
    unit = next(unit for unit in units if text.endswith(unit))
    return float(text.removesuffix(unit)) * units[unit]


_SIZE = re.compile(r"[1-9]\d*[mg]")


@dataclass(frozen=True)
class Settings:
    """What a cluster is to be.

    Attributes:
        hosts: their number at the start.
        cores: tasks that each host runs at once.
        memory: of each host for executors, such as 1g.
        netem: what the network does to each packet that a host sends, see `parse_netem`; "" nothing.
        disk: size of each host's state folder, such as 256m, held in memory; "" as large as the file system.
        isolated: each host in namespaces of its own, instead of a loopback address of its own.
    """

    hosts: int
    cores: int = 2
    memory: str = "1g"
    netem: str = ""
    disk: str = ""
    isolated: bool = False

    def __post_init__(self) -> None:
        """Raises UsageError for what no cluster can be."""
        if not 0 <= self.hosts <= HOSTS_MOST:
            raise UsageError(f"The number of hosts must be from 0 to {HOSTS_MOST}, not {self.hosts}.")
        if self.cores < 1:
            raise UsageError(f"The number of cores of a host must be at least 1, not {self.cores}.")
        for what, size in (("memory", self.memory), ("disk", self.disk or "1g")):
            if not _SIZE.fullmatch(size):
                raise UsageError(f"A host's {what} must be a size such as 512m or 2g, not {size!r}.")
        parse_netem(self.netem)
        if (self.netem or self.disk) and not self.isolated:
            raise UsageError("A network or disk of its own needs hosts in namespaces: run as root, or leave it out.")

    def write(self, path: Path) -> None:
        """Writes what `read` reads."""
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> "Settings":
        """Reads what `write` wrote."""
        return cls(**json.loads(path.read_text(encoding="utf-8")))


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
