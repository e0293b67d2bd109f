"""The query's processes as a supervisor sees them: started again when they end, found by their role.

Also the armed fault: the file that `impls.faults` looks for, and what it says when the fault has fired.
"""

import contextlib
import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import psutil

from harness.files import JsonLines, read_lines, write_json
from harness.lab.child import Child, ProcessEnd
from impls.errors import StateError

VARIABLE = "RESCALE_FAULTS"
_END_DEADLINE_S = 30.0
_POLL_S = 0.02


class Arming:
    """arm() one fault at a time; fired() says when it happened."""

    def __init__(self, file: Path):
        self.file = file

    def arm(
        self,
        name: str,
        *,
        victim: str,
        point: str,
        pids: Mapping[str, int],
        action: Literal["kill", "stop", "hold"] = "kill",
        conditions: Mapping[str, int | bool | str] | None = None,
    ) -> None:
        """Arms a fault; `conditions` are query, worker, migrating and after_epoch of `impls.faults`."""
        self._go.unlink(missing_ok=True)
        armed: dict[str, Any] = {"id": name, "victim": victim, "point": point, "pids": dict(pids), "action": action}
        write_json(self.file, {**armed, **(conditions or {})})

    def tell(self, name: str, pid: int) -> None:
        """Notes a fault that was carried out by itself: of a process that has no points."""
        with JsonLines(self._fired) as lines:
            lines.write({"id": name, "at_us": time.time_ns() // 1000, "pid": pid})

    def disarm(self) -> None:
        """Takes an armed fault back."""
        self.file.unlink(missing_ok=True)

    def release(self) -> None:
        """Lets a process that is held at a point go on."""
        self._go.touch()

    @property
    def _go(self) -> Path:
        return self.file.with_name(f"{self.file.name}.go")

    @property
    def _fired(self) -> Path:
        return self.file.with_name(f"{self.file.name}.fired")

    def fired(self, name: str) -> dict[str, Any] | None:
        """Returns what a fault wrote when it fired (at_us, pid and its context), None if it has not."""
        lines = read_lines(self._fired)
        return next((line for line in lines if line["id"] == name), None)


RUN_FAULT = "fault.json"


def disturbed(folder: Path) -> bool:
    """Returns whether the fault of a run has happened."""
    return Arming(folder / RUN_FAULT).fired(RUN_FAULT) is not None


class QueryProcess:
    """start() and, when ended() says so, start() again; close() ends it and its children if they still run.

    Its processes are known by the fault file that they all have in their environment, also when their parent is dead.
    What it tells is in query.out, its log is query.log.
    """

    def __init__(self, folder: Path, fault_file: Path, module: str = "harness.suites.faults.query"):
        self._folder, self._fault_file, self._module = folder, fault_file, module
        self._child: Child | None = None

    @property
    def child(self) -> Child:
        """The program that was started last."""
        assert self._child is not None, "start() comes first"
        return self._child

    @property
    def pid(self) -> int:
        """Process id of the Python driver."""
        return self.child.pid

    def start(self) -> None:
        """Starts the query's process; one that was there before has ended."""
        if self._child is not None:
            self._child.close()
        where = {VARIABLE: str(self._fault_file)}
        self._child = Child(self._module, self._folder, log="query.log", said="query.out", env=where)

    def ended(self) -> ProcessEnd | None:
        """Returns how the process ended, None while it runs."""
        return self.child.ended()

    def crash(self) -> None:
        """Kills all processes of the query and returns when they are dead."""
        if self._child is not None:
            self._child.kill()  # by itself too: the environment of one that is dying cannot be read
        kill_all(processes_of(self._fault_file))
        if self._child is not None:
            self._child.wait()

    def close(self) -> None:
        """Ends the process, gracefully if it can in a minute, and every other process of the query."""
        if self._child is not None:
            self._child.close()
        self.crash()


def jvm_of(driver: int) -> int | None:
    """Returns the process id of a driver's JVM, None when there is none."""
    return next((pid for pid in _children(driver) if _program(pid) == "java"), None)


def python_workers(driver: int) -> list[int]:
    """Returns the process ids of a driver's Python workers: children of Spark's daemon, which is one of the JVM."""
    jvm = jvm_of(driver)
    daemons = [] if jvm is None else _children(jvm)
    return sorted(pid for daemon in daemons for pid in _children(daemon))


def processes_of(fault_file: Path) -> list[int]:
    """Returns the process ids of all processes that look for an armed fault in a file, without this one."""
    pids = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.pid != os.getpid() and process.environ().get(VARIABLE) == str(fault_file):
                pids.append(process.pid)
    return pids


def kill_all(pids: list[int]) -> None:
    """Kills processes and returns when they are dead; raises StateError when one does not die in 30 s."""
    for pid in pids:
        signal_if_alive(pid, signal.SIGKILL)
    end = time.monotonic() + _END_DEADLINE_S
    while left := [pid for pid in pids if lives(pid)]:
        if time.monotonic() > end:
            raise StateError(f"The processes {left} do not die.")
        time.sleep(_POLL_S)


def lives(pid: int) -> bool:
    """Returns whether a process runs or is stopped; one that waits to be reaped is dead."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def signal_if_alive(pid: int, number: signal.Signals) -> None:
    """Sends a signal; a process that is gone gets none."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _children(pid: int) -> list[int]:
    with contextlib.suppress(psutil.Error):
        return [child.pid for child in psutil.Process(pid).children()]
    return []


def _program(pid: int) -> str:
    with contextlib.suppress(psutil.Error, IndexError):
        return Path(psutil.Process(pid).cmdline()[0]).name
    return ""
