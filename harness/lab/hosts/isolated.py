"""Hosts in namespaces of their own: each has its network, its processes and its state folder; a bridge joins them."""

import ctypes
import ipaddress
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import zlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import cache
from pathlib import Path

from harness.lab.hosts import cable, host
from harness.lab.hosts.settings import Launch, Netem, Network, Process
from impls.errors import UsageError

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


def _own_network() -> str:
    """Gives this process a network of its own and returns the path in /proc of the one that it had."""
    before = f"/proc/{os.getpid()}/fd/{os.open('/proc/self/ns/net', os.O_RDONLY)}"
    if ctypes.CDLL(None, use_errno=True).unshare(_NEW_NETWORK):
        raise UsageError(f"No network of its own could be made: {os.strerror(ctypes.get_errno())}.")
    return before


def _run_ip(*commands: str) -> None:
    """Carries out commands of `ip` one after another; raises UsageError with its words for the first that fails."""
    _ip(("ip",), commands)


def _ip_there(place: str, *commands: str) -> None:
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


_GRACE_S = 5.0
_READY_DEADLINE_S = 20.0
_FIRST = 10  # last byte of host 0's address; 1 is the driver's and 2 the master's


class _Machine:
    """A process whose end is the end of all processes of its host."""

    def __init__(self, process: "subprocess.Popen[bytes]"):
        self._process = process

    def poll(self) -> int | None:
        """Returns the exit code, None while it runs."""
        return self._process.poll()

    def stop(self) -> int:
        """Ends the host at once."""
        with suppress(ProcessLookupError):
            os.kill(self._process.pid, signal.SIGKILL)
        return self._process.wait(_GRACE_S)


class Isolated(Network):
    """The calling process gets a network with a bridge; the network that it came from has the driver's address.

    Interfaces end with the namespaces, and these with their last process.
    """

    def __init__(self, folder: Path, *, disk: str = "", netem: Netem | None = None):
        self._folder, self._disk, self._netem = folder, disk, netem
        self._cables: dict[int, subprocess.Popen[bytes]] = {}
        wanted = zlib.crc32(str(folder).encode()) % 256  # a cluster that comes again has the same addresses if it can
        free = sorted(free_subnets(), key=lambda subnet: (subnet - wanted) % 256)
        outside = _own_network()
        host.ORPHAN_TRIES.write_text("1")
        _run_ip("link set lo up", "link add hosts type bridge", "link set hosts up")
        subnet = self._join_outside(outside, free)
        self._stem = f"198.18.{subnet}."
        self.master, self.driver = f"{self._stem}2", f"{self._stem}1"
        _run_ip(f"addr add {self.master}/24 dev hosts")

    @staticmethod
    def _join_outside(outside: str, free: list[int]) -> int:
        """Lays a cable to the network outside; its name there is taken by one cluster at a time, and so its subnet."""
        refused = "no subnet of 198.18.0.0/16 is free"
        for subnet in free:
            name = f"rescale{subnet}"
            try:
                _run_ip(f"link add {name} type veth peer name outside", f"link set {name} netns {outside}")
            except UsageError as error:
                refused = str(error)
                with suppress(UsageError):
                    _run_ip(f"link del {name}")
                continue
            _ip_there(outside, f"addr add 198.18.{subnet}.1/24 dev {name}", f"link set {name} up")
            _run_ip("link set outside master hosts", "link set outside up")
            return subnet
        raise UsageError(f"The hosts cannot be joined to this machine's network: {refused}.")

    def address(self, number: int) -> str:
        """Returns 198.18.N.11 for host 1."""
        return f"{self._stem}{_FIRST + number}"

    def work_dir(self, number: int) -> Path:
        """Returns the folder that is each host's own."""
        return self._folder / "here"

    def start_master(self, launch: Launch) -> Process:
        """Starts the master's program beside the bridge."""
        with launch.log.open("wb") as log:
            return _Machine(
                subprocess.Popen(launch.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=launch.env)
            )

    def start_host(self, number: int, launch: Launch) -> Process:
        """Makes a host and starts its program there."""
        command: list[str | Path] = [
            *UNSHARE, "--net", "--", sys.executable, "-I", "-S", host.__file__, self._folder, str(number), self._disk,
            *launch.command,
        ]  # fmt: skip
        with launch.log.open("wb") as log:
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=launch.env
            )
        machine = _Machine(process)
        try:
            _await_ready(process, f"host{number}", launch.log)
            self._lay_cable(number, process.pid)
            _say(process, "go")
        except BaseException:
            machine.stop()
            raise
        return machine

    def _lay_cable(self, number: int, pid: int) -> None:
        there = f"/proc/{pid}/ns/net"
        if self._netem is None:
            _run_ip(f"link add host{number} type veth peer name eth0 netns {pid}")
        else:
            self._cables[number] = _start_cable(f"host{number}", pid, self._netem, self._folder / "cables.log")
        _run_ip(f"link set host{number} master hosts", f"link set host{number} up")
        _ip_there(there, "link set lo up", f"addr add {self.address(number)}/24 dev eth0", "link set eth0 up")

    def cut(self, number: int, *, off: bool) -> None:
        """Pulls a host's cable, or puts it in again."""
        _run_ip(f"link set host{number} {'down' if off else 'up'}")

    def disturb(self, netem: Netem) -> None:
        """Changes what the cables do to packets; raises UsageError where they were laid without a word on it."""
        if self._netem is None:
            raise UsageError("The hosts' network cannot be slowed now: start the cluster with --netem 'delay 0ms'.")
        self._netem = netem
        for process in self._cables.values():
            if process.poll() is None:
                _say(process, json.dumps(asdict(netem)))


def _start_cable(name: str, pid: int, netem: Netem, said: Path) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-I", "-S", cable.__file__, name, str(pid), json.dumps(asdict(netem))]
    with said.open("ab") as log:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)
    try:
        _await_ready(process, name, said)
    except BaseException:
        process.kill()
        process.wait(_GRACE_S)
        raise
    return process


def _await_ready(process: "subprocess.Popen[bytes]", name: str, log: Path) -> None:
    """Waits until a process says that its namespaces or interfaces are there."""
    assert process.stdout is not None
    spoken = select.select([process.stdout], [], [], _READY_DEADLINE_S)[0]
    if not spoken or process.stdout.readline() != b"ready\n":
        raise UsageError(f"{name} could not be made in {_READY_DEADLINE_S:.0f} s: see {log}.")


def _say(process: "subprocess.Popen[bytes]", line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{line}\n".encode())
    process.stdin.flush()
