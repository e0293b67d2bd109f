"""What a cluster of hosts is to be, checked, and as its supervisor reads it."""

import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path

from harness.lab.hosts.netem import HOSTS_MOST, parse_netem
from impls.errors import UsageError

__all__ = ["Settings"]

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
