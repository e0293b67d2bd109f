"""What Linux gives a host: namespaces, addresses and links, by the programs of iproute2 and util-linux."""

import ctypes
import ipaddress
import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache

from impls.errors import UsageError

__all__ = ["UNSHARE", "can_isolate", "free_subnets", "ip", "ip_there", "own_network"]

_NEW_NETWORK = 0x40000000  # CLONE_NEWNET
_DEADLINE_S = 20.0
_RANGE = ipaddress.IPv4Network("198.18.0.0/16")  # RFC 2544: for the benchmarking of networks, never routed outside
UNSHARE = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation", "private")
_NEEDED = ("ip", "unshare", "nsenter", "mount")


@cache
def can_isolate() -> bool:
    """Returns whether this process may make namespaces, with the programs that it takes."""
    if os.name != "posix" or os.geteuid() != 0 or not all(map(shutil.which, _NEEDED)):
        return False
    tried = [*UNSHARE, "--net", "--", "ip", "link", "add", "try0", "type", "veth", "peer", "name", "try1"]
    return subprocess.run(tried, capture_output=True, timeout=_DEADLINE_S, check=False).returncode == 0


def own_network() -> str:
    """Gives this process a network of its own and returns the path in /proc of the one that it had."""
    before = f"/proc/{os.getpid()}/fd/{os.open('/proc/self/ns/net', os.O_RDONLY)}"
    if ctypes.CDLL(None, use_errno=True).unshare(_NEW_NETWORK):
        raise UsageError(f"No network of its own could be made: {os.strerror(ctypes.get_errno())}.")
    return before


def ip(*commands: str) -> None:
    """Carries out commands of `ip` one after another; raises UsageError with its words for the first that fails."""
    _ip(("ip",), commands)


def ip_there(place: str, *commands: str) -> None:
    """Carries out commands of `ip` in the network of which /proc has a file at a path."""
    _ip(("nsenter", f"--net={place}", "ip"), commands)


def _ip(program: Sequence[str], commands: Sequence[str]) -> None:
    done = subprocess.run(
        [*program, "-batch", "-"], input="".join(f"{command}\n" for command in commands), capture_output=True,
        text=True, timeout=_DEADLINE_S, check=False,
    )  # fmt: skip
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise UsageError(f"The network of the hosts cannot be made: ip says {said[0]!r} of {commands!r}.")


def free_subnets() -> list[int]:
    """Returns the numbers N for which no route of this network overlaps 198.18.N.0/24."""
    done = subprocess.run(
        ["ip", "-json", "route", "show", "table", "all"], capture_output=True, timeout=_DEADLINE_S, check=True
    )
    taken = [_network(route["dst"]) for route in json.loads(done.stdout or "[]") if route["dst"] != "default"]
    ours = [network for network in taken if network is not None and network.overlaps(_RANGE)]
    return [number for number in range(256) if not any(_subnet(number).overlaps(network) for network in ours)]


def _subnet(number: int) -> ipaddress.IPv4Network:
    return ipaddress.IPv4Network(f"198.18.{number}.0/24")


def _network(text: str) -> ipaddress.IPv4Network | None:
    try:
        return ipaddress.IPv4Network(text, strict=False)
    except ValueError:
        return None  # of IPv6
