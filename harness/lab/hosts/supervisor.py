"""The process that a cluster of hosts belongs to; all hosts end with it, however it ends.

`python -m harness.lab.hosts.supervisor FOLDER` starts what FOLDER/settings.json says, and carries out commands until it
is told to stop. With `--held` it ends with its standard input too, unless a line `stay` has come. Isolated hosts live
in the process namespace of which it is the first process, so the kernel ends them.
"""

import os
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from generators.stop import Stop
from harness.files import write_json
from harness.lab.hosts.control import Listener
from harness.lab.hosts.isolated import Isolated
from harness.lab.hosts.kernel import UNSHARE
from harness.lab.hosts.loopback import Loopback
from harness.lab.hosts.members import Members
from harness.lab.hosts.netem import parse_netem
from harness.lab.hosts.network import Network
from harness.lab.hosts.settings import Settings
from harness.setup.java import use_java
from impls.errors import UsageError

__all__ = ["main"]

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
    with Members(folder, settings, network, java, cancelled=told.is_set) as members:
        listener = Listener(folder)
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


def _carry_out(members: Members, told: threading.Event, command: dict[str, Any]) -> Any:
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
