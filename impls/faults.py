"""Named places at which a test may let a process die; without `RESCALE_FAULTS` nothing happens at them.

The environment variable is read here and nowhere else. It names a file; while that exists it holds one armed fault, a
JSON object:

    id          of the fault
    point       one of POINTS or CHANGE_POINTS
    query       only what is of the query of this identity comes to the point (optional)
    worker      only this worker comes to the point (optional)
    migrating   only in an epoch that is, or is not, part of a migration (optional)
    after_epoch only in a later epoch (optional)
    action      kill (SIGKILL), stop (SIGSTOP, deaf to SIGHUP and SIGTERM: it can wake when its parent is dead), or hold
                (wait there for a minute at most, until <file>.go exists)
    victim      whose process it is: worker, driver, jvm or broker
    pids        process id of each victim; one that is not there is the process that comes to the point

The first process that fits takes the file away, appends a line to `<file>.fired`, and acts.
"""

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

POINTS = (
    "before-plan",  # driver: the plan is made, not yet durable
    "after-plan",  # driver: the plan is durable, the job has not begun
    "during-pull",  # worker: the first bin of several is copied
    "after-commit",  # worker: committed, its changelog frame is not durable
    "before-results",  # worker: the frame is durable, no result is sent
    "before-report",  # worker: results are acknowledged
    "during-snapshot",  # worker: half of a snapshot is written
    "before-epoch-commit",  # driver: the epoch is observed, Spark has not committed it
    "between-pull-and-drop",  # driver: a pull was observed, the plan that drops the source is not yet durable
    "during-recovery",  # worker: a lost environment is half rebuilt
)
CHANGE_POINTS = (  # where a change of the pipeline comes along
    "before-switch",  # driver: a plan takes bins over to another version, and is not yet durable
    "during-trial",  # worker: a version has run on records, whose effects are not yet thrown away
    "during-refit",  # worker: a bin's state has taken another shape, not yet committed
)
_DEAD_DEADLINE_S = 2.0
_HOLD_S = 60.0
_POLL_S = 0.01

Hook = Callable[[str, dict[str, Any]], None]

_hook: Hook | None = None


def fault(point: str, **context: Any) -> None:
    """Lets whoever armed a fault or installed a hook act; `context` says where: query, worker, epoch, ..."""
    hook = _hook or _armed_hook()
    if hook is not None:
        hook(point, context)


def install(hook: Hook | None) -> None:
    """Sets what happens at the points (the simulation); None for nothing but what `RESCALE_FAULTS` arms."""
    global _hook  # noqa: PLW0603 - one switch per process
    _hook = hook


@cache
def _armed_hook() -> Hook | None:
    """Returns what the environment asks for, None without it; read once per process, at its first point."""
    name = os.environ.get("RESCALE_FAULTS")
    if not name:
        return None
    file = Path(name)
    return lambda point, context: _reach_point(file, point, context)


def _reach_point(file: Path, point: str, context: dict[str, Any]) -> None:
    """Triggers the armed fault if it fits this point and no other process was faster."""
    try:
        armed = json.loads(file.read_text())
        if armed["point"] != point or not _fits(armed, context):
            return
        file.unlink()
    except FileNotFoundError:
        return
    victim = int(armed["pids"].get(armed["victim"], os.getpid()))
    line = {"id": armed["id"], "at_us": time.time_ns() // 1000, "point": point, "pid": victim, **context}
    with file.with_name(f"{file.name}.fired").open("a") as fired:
        fired.write(json.dumps(line) + "\n")
    if armed["action"] == "hold":
        _hold(file.with_name(f"{file.name}.go"))
    elif armed["action"] == "stop":
        _stop_self()
    else:
        _kill(victim)


def _fits(armed: dict[str, Any], context: dict[str, Any]) -> bool:
    wanted = {name: armed[name] for name in ("query", "worker", "migrating") if name in armed}
    if any(context.get(name) != value for name, value in wanted.items()):
        return False
    return "after_epoch" not in armed or int(context.get("epoch", -1)) > int(armed["after_epoch"])


def _hold(until: Path) -> None:
    end = time.monotonic() + _HOLD_S
    while not until.exists() and time.monotonic() < end:
        time.sleep(_POLL_S)


def _stop_self() -> None:
    """Stops this process until a SIGCONT; works in a main thread, which is where Spark's Python workers run."""
    for number in (signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    os.kill(os.getpid(), signal.SIGSTOP)


def _kill(pid: int) -> None:
    """Kills a process and returns when it is dead, so that nothing behind the point can still reach it."""
    with contextlib.suppress(ProcessLookupError):  # it may be dead already
        os.kill(pid, signal.SIGKILL)
    end = time.monotonic() + _DEAD_DEADLINE_S
    while lives(pid) and time.monotonic() < end:
        time.sleep(_POLL_S)


def started_ticks(pid: int) -> int:
    """Returns when a process began, in clock ticks since the host did; 0 where there is none, or the system is mute."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except (FileNotFoundError, ProcessLookupError):
        return 0


def lives(pid: int) -> bool:
    """Returns whether a process runs or is stopped; one that waits to be reaped is dead."""
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except ProcessLookupError:
        return False
    except FileNotFoundError:
        return not Path("/proc/self").exists()  # macOS has no such folder: the deadline decides
    return state != "Z"
