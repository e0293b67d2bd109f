"""Faults of processes: killed at a fault point, stopped for a while, woken as a zombie, not to be reached."""

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from generators.clock import now_us
from harness.experiment.faults import ANY_PHASE, DRIVER_POINTS
from harness.lab.processes import jvm_of, kill_all, lives, python_workers, signal_if_alive
from harness.suites.faults.schedule import Fault
from harness.suites.faults.site import Site, StuckError
from harness.suites.faults.storage import lose
from impls.store.environment import store_path

__all__ = [
    "COMMAND_DEADLINE_S",
    "FaultEffect",
    "MissedError",
    "kill",
    "stop_worker",
    "unreachable_broker",
    "wake_zombie",
]

COMMAND_DEADLINE_S = 60.0
_FIRE_DEADLINE_S = 40.0
_ZOMBIE_DEADLINE_S = 20.0
_STOPPED_S, _UNREACHABLE_S = 10.0, 20.0
_STOP_POINTS = ("during-pull", "after-commit", "before-results", "before-report")


class MissedError(Exception):
    """The fault did not happen; the message says why."""


@dataclass
class FaultEffect:
    """What a fault did.

    Attributes:
        at_us: when.
        again: the epoch that was interrupted needs no new start and its end counts: only a worker was hit.
        recovers: a worker must be rebuilt from the checkpoint.
        names: what the sentence of a query that refuses must contain, one of them.
        repair: takes the cause away once the query has refused.
        later: what remains to be done once the query has resumed.
    """

    at_us: int
    again: bool = False
    recovers: bool = False
    names: tuple[str, ...] = ()
    repair: Callable[[], None] = lambda: None
    later: Callable[[], None] = field(default=lambda: None)


def kill(site: Site, fault: Fault) -> FaultEffect:
    """Kills the fault's victim at the fault's point."""
    pids = {"driver": site.query.pid, "jvm": _jvm(site), "broker": site.broker.pid or 0}
    if fault.victim == "worker" and fault.point in DRIVER_POINTS:
        pids["worker"] = _worker(site, fault)
    migrating = fault.phase == "migrating"
    conditions = {} if fault.point in ANY_PHASE else {"migrating": migrating}
    site.arming.arm(fault.id, victim=fault.victim, point=fault.point, pids=pids, conditions=conditions)
    if migrating:
        site.migrate(COMMAND_DEADLINE_S)
    if fault.point == "during-recovery":
        lose(store_path(site.state, fault.draw % 2))
    recovers = fault.point == "during-recovery"
    return FaultEffect(_await_fired(site, fault), again=fault.victim == "worker", recovers=recovers)


def stop_worker(site: Site, fault: Fault) -> FaultEffect:
    """Stops a Python worker for 10 s in the middle of an epoch."""
    pid, at_us = _stop(site, fault)
    _pass(site, _STOPPED_S)
    signal_if_alive(pid, signal.SIGCONT)
    return FaultEffect(at_us, again=True)


def wake_zombie(site: Site, fault: Fault) -> FaultEffect:
    """Stops a Python worker, kills the JVM, and wakes the worker when another one has done its work."""
    pid, at_us = _stop(site, fault)
    kill_all([_jvm(site)])

    def wake() -> None:
        signal_if_alive(pid, signal.SIGCONT)
        site.await_true(lambda: not lives(pid), "the zombie to notice that it is outdated", _ZOMBIE_DEADLINE_S)

    return FaultEffect(at_us, later=wake)


def unreachable_broker(site: Site, fault: Fault) -> FaultEffect:
    """Stops the broker for 20 s."""
    if fault.phase == "migrating":
        site.migrate(COMMAND_DEADLINE_S)
    at_us, pid = now_us(), site.broker.pid or 0
    signal_if_alive(pid, signal.SIGSTOP)
    try:
        _pass(site, _UNREACHABLE_S)
    finally:
        signal_if_alive(pid, signal.SIGCONT)
    return FaultEffect(at_us)


def _await_fired(site: Site, fault: Fault) -> int:
    """Returns when an armed fault has fired, µs; raises MissedError when it does not."""
    try:
        site.await_true(lambda: site.arming.fired(fault.id) is not None, "the fault to fire", _FIRE_DEADLINE_S)
    except StuckError as error:
        site.arming.disarm()
        if site.arming.fired(fault.id) is None:
            raise MissedError(str(error)) from error
    return int((site.arming.fired(fault.id) or {})["at_us"])


def _stop(site: Site, fault: Fault) -> tuple[int, int]:
    """Lets a worker stop itself at a point that is drawn, and returns (its process id, when)."""
    migrating = fault.phase == "migrating"
    points = _STOP_POINTS if migrating else _STOP_POINTS[1:]
    point = points[fault.draw % len(points)]
    site.arming.arm(fault.id, victim="worker", point=point, pids={}, action="stop", conditions={"migrating": migrating})
    if migrating:
        site.migrate(COMMAND_DEADLINE_S)
    at_us = _await_fired(site, fault)
    pid = int((site.arming.fired(fault.id) or {})["pid"])
    site.stopped.add(pid)
    return pid, at_us


def _pass(site: Site, seconds: float) -> None:
    end = time.monotonic() + seconds
    site.await_true(lambda: time.monotonic() > end, "the time to pass", 2 * seconds)


def _jvm(site: Site) -> int:
    pid = jvm_of(site.query.pid)
    if pid is None:
        raise MissedError("The query has no JVM.")
    return pid


def _worker(site: Site, fault: Fault) -> int:
    pids = python_workers(site.query.pid)
    if not pids:
        raise MissedError("The query has no Python worker.")
    return pids[fault.draw % len(pids)]
