"""The faults: processes killed, stopped or not to be reached, files lost or damaged, disks full or read-only."""

import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from generators.clock import now_us
from harness.experiment.schedules import ANY_PHASE, DRIVER_POINTS
from harness.files import read_json
from harness.lab.processes import jvm_of, kill_all, lives, processes_of, python_workers, signal_if_alive
from harness.suites.faults.schedule import Fault
from harness.suites.faults.site import BINS, Site, StuckError
from harness.suites.faults.storage import (
    flip_bit,
    holds_deleted,
    limit_files,
    lose,
    newest_frame,
    snapshot_in_use,
    truncate,
)
from impls.durability.frame import frame_name
from impls.store.environment import store_path

_FIRE_DEADLINE_S = 40.0
_ZOMBIE_DEADLINE_S = 20.0
_SNAPSHOT_DEADLINE_S = 60.0
_SETTLE_DEADLINE_S = 90.0
_STOPPED_S, _UNREACHABLE_S = 10.0, 20.0
_STOP_POINTS = ("during-pull", "after-commit", "before-results", "before-report")
_SPOIL: dict[str, Callable[[Path, int], None]] = {"truncated": truncate, "torn": truncate, "flipped": flip_bit}


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
    repair: Callable[[], object] = lambda: None
    later: Callable[[], object] = lambda: None


def kill(site: Site, fault: Fault) -> FaultEffect:
    """Kills the fault's victim at the fault's point."""
    pids = {"driver": site.query.pid, "jvm": _jvm(site), "broker": site.broker.pid or 0}
    if fault.victim == "worker" and fault.point in DRIVER_POINTS:
        pids["worker"] = _worker(site, fault)
    if fault.point == "during-snapshot":  # a worker writes none where no record has come since the last one
        before = site.applied()
        site.await_true(lambda: site.applied() > before, "records to be applied", _FIRE_DEADLINE_S)
    migrating = fault.phase == "migrating"
    conditions = site.conditions | ({} if fault.point in ANY_PHASE else {"migrating": migrating})
    site.arming.arm(fault.id, victim=fault.victim, point=fault.point, pids=pids, conditions=conditions)
    migrate_if_asked(site, fault)
    rebuilds = fault.point == "during-recovery"
    if rebuilds:
        lose(store_path(site.state, fault.draw % 2))
    # A worker outlives its driver and its JVM for a moment: no epoch's line tells of a rebuilding that it ends then.
    recovers = rebuilds and fault.victim in ("worker", "broker")
    return FaultEffect(await_fired(site, fault), again=fault.victim == "worker", recovers=recovers)


def _stop_worker(site: Site, fault: Fault) -> FaultEffect:
    """Stops a Python worker for 10 s in the middle of an epoch."""
    pid, at_us = _stop(site, fault)
    wait(site, _STOPPED_S)
    signal_if_alive(pid, signal.SIGCONT)
    return FaultEffect(at_us, again=True)


def _wake_zombie(site: Site, fault: Fault) -> FaultEffect:
    """Stops a Python worker, kills the JVM, and wakes the worker when another one has done its work."""
    pid, at_us = _stop(site, fault)
    kill_all([_jvm(site)])

    def wake() -> None:
        signal_if_alive(pid, signal.SIGCONT)
        site.await_true(lambda: not lives(pid), "the zombie to notice that it is outdated", _ZOMBIE_DEADLINE_S)

    return FaultEffect(at_us, later=wake)


def _unreachable_broker(site: Site, fault: Fault) -> FaultEffect:
    """Stops the broker for 20 s."""
    migrate_if_asked(site, fault)
    at_us, pid = now_us(), site.broker.pid or 0
    signal_if_alive(pid, signal.SIGSTOP)
    try:
        wait(site, _UNREACHABLE_S)
    finally:
        signal_if_alive(pid, signal.SIGCONT)
    return FaultEffect(at_us)


def await_fired(site: Site, fault: Fault) -> int:
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
    conditions = {**site.conditions, "migrating": migrating}
    site.arming.arm(fault.id, victim="worker", point=point, pids={}, action="stop", conditions=conditions)
    migrate_if_asked(site, fault)
    at_us = await_fired(site, fault)
    pid = int((site.arming.fired(fault.id) or {})["pid"])
    site.stopped.add(pid)
    return pid, at_us


def wait(site: Site, seconds: float) -> None:
    """Lets time pass, tending what dies."""
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


def _damage_environment(site: Site, fault: Fault) -> FaultEffect:
    """Loses or damages one worker's environment while the query runs."""
    migrate_if_asked(site, fault)
    folder, at_us = store_path(site.state, fault.draw % 2), now_us()
    if fault.point == "lost":
        lose(folder)
    else:
        _SPOIL[fault.point](folder / "data.mdb", fault.draw)
    return FaultEffect(at_us, again=True, recovers=fault.point != "flipped")  # a bit that nobody reads goes unnoticed


def _lose_state(site: Site, fault: Fault) -> FaultEffect:
    """Loses the environments of all workers while the query is down."""
    migrate_if_asked(site, fault)
    site.query.crash()
    at_us = now_us()
    _lose_all(site)
    return FaultEffect(at_us, recovers=True)


def _torn_frame(site: Site, fault: Fault) -> FaultEffect:
    """Cuts off a worker's newest changelog frame while the query is down; the environments are whole."""
    migrate_if_asked(site, fault)
    site.query.crash()
    at_us = now_us()
    owners = site.owners(site.epochs()[-1]["epoch"])
    truncate(newest_frame(_durable(site), owners[fault.draw % len(owners)]), fault.draw)
    return FaultEffect(at_us)


def _damage_frame(site: Site, fault: Fault) -> FaultEffect:
    """Damages a changelog frame that recovery needs, with all environments lost, while the query is down."""
    migrate_if_asked(site, fault)
    site.held = True
    site.query.crash()
    epoch = site.epochs()[-1]["epoch"] - 1  # the last one may not be committed, and is then not needed
    owners = site.owners(epoch)
    return _refused(site, fault, _durable(site) / frame_name(epoch, owners[fault.draw % len(owners)]))


def _damage_snapshot(site: Site, fault: Fault) -> FaultEffect:
    """Damages a snapshot that recovery needs, with all environments lost, while the query is down."""
    migrate_if_asked(site, fault)

    def in_use() -> Path | None:
        query = read_json(_durable(site) / "query.json")["query"]
        return snapshot_in_use(_durable(site), query, BINS, fault.draw)

    site.await_true(lambda: in_use() is not None, "a snapshot", _SNAPSHOT_DEADLINE_S)
    site.held = True
    site.query.crash()
    file = in_use()
    if file is None:
        raise MissedError("No snapshot is in use.")
    return _refused(site, fault, file)


def _full_disk(site: Site, fault: Fault) -> FaultEffect:
    """Fills the disk of the workers' state while the query needs more of it: two further workers come into being."""
    if site.workers > 2:
        site.migrate()
        site.await_true(site.settled, "the workers to retire", _SETTLE_DEADLINE_S)
    site.held = True
    for worker in (2, 3):
        lose(store_path(site.state, worker))  # of retired workers: nobody's state, but space

    def are_closed() -> bool:  # whose space is free then; in real time at the workers' next epoch
        return not holds_deleted(processes_of(site.arming.file), site.state)

    site.await_true(are_closed, "the lost environments to be closed", _SETTLE_DEADLINE_S)
    at_us = now_us()
    if site.disk.mounted:
        site.disk.fill()
    else:
        limit_files([pid for pid in processes_of(site.arming.file) if pid != site.query.pid], 1)
    site.migrate()
    return FaultEffect(at_us, names=("No space left", "File too large"), repair=site.disk.free)


def _read_only_disk(site: Site, fault: Fault) -> FaultEffect:
    """Makes the disk of the workers' state read-only."""
    migrate_if_asked(site, fault)
    site.held = True
    at_us = now_us()
    site.disk.forbid_writing(site.tend)
    return FaultEffect(at_us, names=("Read-only", "read-only", "ermission denied"), repair=site.disk.allow_writing)


def _refused(site: Site, fault: Fault, file: Path) -> FaultEffect:
    copy = site.folder / "copy"
    shutil.copyfile(file, copy)
    _SPOIL[fault.point](file, fault.draw)
    _lose_all(site)
    at_us = now_us()
    site.begin_fault()
    site.held = True
    site.query.start()
    return FaultEffect(at_us, recovers=True, names=(file.name,), repair=partial(copy.replace, file))


def _lose_all(site: Site) -> None:
    for folder in site.state.glob("worker-*"):
        lose(folder)


def _durable(site: Site) -> Path:
    return site.checkpoint / "rescale"


def migrate_if_asked(site: Site, fault: Fault) -> None:
    """Commands the migration in which the fault is to happen."""
    if fault.phase == "migrating":
        site.migrate()


_INFLICT: dict[str, Callable[[Site, Fault], FaultEffect]] = {
    "disk@full": _full_disk,
    "disk@read-only": _read_only_disk,
    "frame@torn": _torn_frame,
    "frame@truncated": _damage_frame,
    "frame@flipped": _damage_frame,
    "snapshot@truncated": _damage_snapshot,
    "snapshot@flipped": _damage_snapshot,
    "state@lost": _lose_state,
    "environment@lost": _damage_environment,
    "environment@truncated": _damage_environment,
    "environment@flipped": _damage_environment,
    "worker@stopped": _stop_worker,
    "worker@zombie": _wake_zombie,
    "broker@unreachable": _unreachable_broker,
}  # all others are kills at a fault point


def inflict(site: Site, fault: Fault) -> FaultEffect:
    """Inflicts a fault; raises MissedError when it does not happen."""
    return _INFLICT.get(fault.name, kill)(site, fault)
