"""What a cluster of hosts is to be: its size, its network in the words of `tc netem`, as its supervisor reads it."""

import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path

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
