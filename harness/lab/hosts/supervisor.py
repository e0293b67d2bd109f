"""The process that a cluster of hosts belongs to; all hosts end with it, however it ends.

`python -m harness.lab.hosts.supervisor FOLDER` starts what FOLDER/settings.json says, and carries out commands until it
is told to stop. With `--held` it ends with its standard input too, unless a line `stay` has come. Isolated hosts live
in the process namespace of which it is the first process, so the kernel ends them.
"""

import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from re import Match, Pattern
from typing import Any

from generators.stdin import Stop
from harness.files import write_json
from harness.lab.hosts import programs
from harness.lab.hosts.control import CommandListener
from harness.lab.hosts.isolated import UNSHARE, Isolated
from harness.lab.hosts.settings import HOSTS_MOST, Launch, Loopback, Network, Process, Settings, parse_netem
from harness.setup.java import use_java
from impls.errors import UsageError

_READY_DEADLINE_S = 60.0
_POLL_S = 0.05
_MASTER = 0  # its number in a mark
_PORT = 7077  # of the master, where no other program can have it


class _Members:
    """`begin` starts all, `with` ends all; a host that has ended is gone for good, its number with it."""

    def __init__(
        self, folder: Path, settings: Settings, network: Network, java: Path, *, cancelled: Callable[[], bool]
    ):
        self._folder, self._settings, self._network, self._java = folder, settings, network, java
        self._cancelled = cancelled
        self._hosts: dict[int, Process] = {}
        self._cut: set[int] = set()
        self._master: Process | None = None
        self._next = 1
        self.master = ""

    def begin(self) -> None:
        """Starts master and hosts; raises UsageError when one is not up in 60 s."""
        for name in ("hosts", "state", "here"):
            (self._folder / name).mkdir(parents=True, exist_ok=True)
        port = _PORT if self._settings.isolated else 0
        command, log = programs.master(self._java, self._network.master, port), self._folder / "master.log"
        self._master = self._network.start_master(Launch(command, self._environment(_MASTER, self._folder), log))
        self.master = self._await(self._master, log, programs.MASTER_UP)[1]
        self.add(self._settings.hosts)

    def add(self, count: int) -> list[int]:
        """Starts hosts at the same time and returns their numbers when they belong to the cluster."""
        numbers = list(range(self._next, self._next + count))
        if numbers and numbers[-1] > HOSTS_MOST:
            raise UsageError(f"A cluster has {HOSTS_MOST} hosts in its life at most.")
        self._next += count
        try:
            for number in numbers:
                self._hosts[number] = self._network.start_host(number, self._launch(number))
            for number in numbers:
                self._await(self._hosts[number], self._log(number), programs.WORKER_UP)
        except BaseException:
            for number in numbers:
                if number in self._hosts:
                    self._hosts[number].stop()
            raise
        return numbers

    def remove(self, number: int) -> None:
        """Ends a host with all that runs there."""
        self._known(number).stop()

    def cut(self, number: int, *, off: bool) -> None:
        """Cuts a host off from the network, or connects it again."""
        self._known(number)
        self._network.cut(number, off=off)
        (self._cut.add if off else self._cut.discard)(number)

    def disturb(self, netem: str) -> None:
        """Changes what the network does to packets from now on."""
        self._network.disturb(parse_netem(netem))

    def master_runs(self) -> bool:
        """Returns whether the master lives."""
        return self._master is not None and self._master.poll() is None

    def status(self) -> list[dict[str, Any]]:
        """Returns number, address and state (up, cut off, gone) of every host there ever was."""
        return [
            {"number": number, "address": self._network.address(number), "state": self._state(number, process)}
            for number, process in self._hosts.items()
        ]

    def __enter__(self) -> "_Members":
        return self

    def __exit__(self, *_: object) -> None:
        with ExitStack() as stack:
            for process in (self._master, *self._hosts.values()):
                if process is not None and process.poll() is None:
                    stack.callback(process.stop)

    def _state(self, number: int, process: Process) -> str:
        if process.poll() is not None:
            return "gone"
        return "cut off" if number in self._cut else "up"

    def _known(self, number: int) -> Process:
        process = self._hosts.get(number)
        if process is None or process.poll() is not None:
            raise UsageError(f"The cluster has no host {number}.")
        return process

    def _log(self, number: int) -> Path:
        return self._folder / "hosts" / str(number) / "worker.log"

    def _launch(self, number: int) -> Launch:
        own, seen = self._folder / "hosts" / str(number), self._network.work_dir(number)
        for name in ("state", "work", "local"):
            (own / name).mkdir(parents=True, exist_ok=True)
        address = self._network.address(number)
        command = programs.worker(self._java, address, self._settings, work=seen / "work", master=self.master)
        return Launch(command, self._environment(number, seen), self._log(number))

    def _environment(self, number: int, folder: Path) -> dict[str, str]:
        address = self._network.address(number) if number else self._network.master
        return programs.environment(address, folder, f"{self._folder}#{number}")

    def _await(self, process: Process, log: Path, up: Pattern[str]) -> Match[str]:
        """Returns what a program's log says when it is up; raises UsageError when it has ended or does not say it."""
        end = time.monotonic() + _READY_DEADLINE_S
        while (match := up.search(log.read_text(errors="replace"))) is None:
            if process.poll() is not None or time.monotonic() > end or self._cancelled():
                last = log.read_text(errors="replace").strip().splitlines()[-1:] or ["it said nothing"]
                raise UsageError(f"A host's program did not come up: {last[0]}; its log is {log}.")
            time.sleep(_POLL_S)
        return match


_LOOK_S = 0.5


def main(arguments: Sequence[str]) -> int:
    """Runs a cluster until it is told to stop and returns the exit code: 0 stopped, 1 its master ended, 2 bad input."""
    folder, inside = Path(arguments[0]), "--inside" in arguments
    settings = Settings.read(folder / "settings.json")
    if settings.isolated and not inside:
        os.execvp(UNSHARE[0], [*UNSHARE, "--", sys.executable, "-m", __spec__.name, *arguments, "--inside"])
    told = Stop.on_signals()
    if "--held" in arguments:
        threading.Thread(target=_hold, args=(told,), daemon=True).start()
    try:
        return _run(folder, settings, told)
    except UsageError as error:
        write_json(folder / "cluster.json", {"error": str(error)})
        return 2


def _hold(told: threading.Event) -> None:
    """Ends the cluster when standard input ends, unless it has said `stay`."""
    if os.read(sys.stdin.fileno(), 64) != b"stay\n":
        told.set()


def _run(folder: Path, settings: Settings, told: threading.Event) -> int:
    java = use_java()
    network = _network(folder, settings)
    with _Members(folder, settings, network, java, cancelled=told.is_set) as members:
        listener = CommandListener(folder)
        members.begin()
        write_json(folder / "cluster.json", {"master": members.master, "driver": network.driver})
        while not told.is_set():
            if not members.master_runs():
                raise UsageError(f"The cluster's master has ended: see {folder / 'master.log'}.")
            listener.answer(lambda command: _carry_out(members, told, command), _LOOK_S)
    return 0


def _network(folder: Path, settings: Settings) -> Network:
    if not settings.isolated:
        return Loopback(folder)
    return Isolated(folder, disk=settings.disk, netem=parse_netem(settings.netem) if settings.netem else None)


def _carry_out(members: _Members, told: threading.Event, command: dict[str, Any]) -> Any:
    """Does what a command says and returns the answer; raises UsageError."""
    match command:
        case {"do": "status"}:
            return members.status()
        case {"do": "stop"}:
            return told.set()
        case {"do": "add"}:
            return members.add(1)[0]
        case {"do": "remove", "host": int(number)}:
            return members.remove(number)
        case {"do": "cut", "host": int(number), "off": bool(off)}:
            return members.cut(number, off=off)
        case {"do": "disturb", "netem": str(netem)}:
            return members.disturb(netem)
    raise UsageError(f"The cluster does not know the command {command!r}.")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
