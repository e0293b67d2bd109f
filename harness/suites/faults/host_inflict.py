"""The faults of a cluster: executors killed, hosts off or cut off, the checkpoint out of reach, a full disk.

Where a fault has a point, the first process that comes there is held until the fault has happened.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager

from generators.clock import now_us
from harness.experiment.schedules import ANY_PHASE
from harness.lab.hosts.cluster import Host
from harness.suites.faults.hosts import HostSite
from harness.suites.faults.inflict import FaultEffect, MissedError, await_fired, kill, migrate_if_asked, wait
from harness.suites.faults.schedule import Fault
from harness.suites.faults.storage import Disk

_CUT_S, _CHECKPOINT_S = 20.0, 10.0
_SETTLE_DEADLINE_S = 120.0
_CHECKPOINT_POINTS = ("after-commit", "after-plan", "during-pull")


def _hold(site: HostSite, fault: Fault, point: str) -> int:
    """Returns when a process has come to a point, µs; it stays there until `release`."""
    conditions = {} if point in ANY_PHASE else {"migrating": fault.phase == "migrating"}
    site.arming.arm(fault.id, victim="worker", point=point, pids={}, action="hold", conditions=conditions)
    migrate_if_asked(site, fault)
    return await_fired(site, fault)


def _at_point(site: HostSite, fault: Fault, act: Callable[[Host], object]) -> tuple[int, Host]:
    """Does something to a host while a process is held at the fault's point, and returns (when, µs, the host)."""
    host = site.hosts[fault.draw % len(site.hosts)]
    try:
        _hold(site, fault, fault.point)
        at_us = now_us()
        act(host)
    finally:
        site.arming.release()
    return at_us, host


def _kill_executor(site: HostSite, fault: Fault) -> FaultEffect:
    """Kills the executors of a host with -9; Spark starts others there."""
    return FaultEffect(_at_point(site, fault, site.cluster.kill_executor)[0], again=True, later=site.whole)


def _kill_host(site: HostSite, fault: Fault) -> FaultEffect:
    """Ends a host as a cut of its power would; another one, with an empty disk, comes when the query goes on."""
    return FaultEffect(_at_point(site, fault, site.cluster.kill_host)[0], again=True, later=site.whole)


def _cut_link(site: HostSite, fault: Fault) -> FaultEffect:
    """Cuts a host off for 20 s."""
    at_us, host = _at_point(site, fault, site.cluster.cut_off)
    wait(site, _CUT_S)
    site.cluster.reconnect(host)
    return FaultEffect(at_us, again=True, later=site.whole)


def _abandon_host(site: HostSite, fault: Fault) -> FaultEffect:
    """Cuts a host off for good: the query migrates there and back without it before another one comes."""
    at_us, host = _at_point(site, fault, site.cluster.cut_off)

    def go_on() -> None:
        for _ in range(2):
            site.await_true(site.settled, "the others to migrate", _SETTLE_DEADLINE_S)
            site.migrate()
        site.await_true(site.settled, "the others to migrate back", _SETTLE_DEADLINE_S)
        site.cluster.remove_host(host)
        site.whole()

    return FaultEffect(at_us, again=True, later=go_on)


def _wake_host(site: HostSite, fault: Fault) -> FaultEffect:
    """Cuts a host off and connects it again, with the state that it had, when the query has migrated without it."""
    at_us, host = _at_point(site, fault, site.cluster.cut_off)

    def wake() -> None:
        site.await_true(site.settled, "the others to migrate", _SETTLE_DEADLINE_S)
        site.migrate()
        site.await_true(site.settled, "the others to migrate again", _SETTLE_DEADLINE_S)
        site.cluster.reconnect(host)
        site.whole()
        site.migrate()

    return FaultEffect(at_us, again=True, later=wake)


def _disturb_checkpoint(site: HostSite, fault: Fault) -> FaultEffect:
    """Makes the checkpoint slow, lets it not answer, or takes it away from the hosts, each for 10 s."""
    if not site.shared.mounted:
        raise MissedError("No file system could be mounted for the checkpoint.")
    pids = [host.worker for host in site.hosts]
    ways: dict[str, Callable[[], AbstractContextManager[None]]] = {
        "slow": site.shared.slow,
        "frozen": site.shared.frozen,
        "gone": lambda: site.shared.gone_on([pid for pid in pids if pid is not None]),
    }
    points = _CHECKPOINT_POINTS if fault.phase == "migrating" else _CHECKPOINT_POINTS[:2]
    try:
        _hold(site, fault, points[fault.draw % len(points)])
        at_us = now_us()
        with ways[fault.point]():
            site.arming.release()
            wait(site, _CHECKPOINT_S)
    finally:
        site.arming.release()
    return FaultEffect(at_us, again=True)


def _fill_disk(site: HostSite, fault: Fault) -> FaultEffect:
    """Fills the disk of a host that has workers' state."""
    at = sorted(set(site.homes().values()))
    host = next(host for host in site.hosts if host.address == at[fault.draw % len(at)])
    migrate_if_asked(site, fault)
    site.held = True
    disk, at_us = Disk(host.state_dir), now_us()
    disk.fill()
    return FaultEffect(at_us, names=("No space left", "File too large"), repair=disk.free)


_INFLICT: dict[str, Callable[[HostSite, Fault], FaultEffect]] = {
    "executor": _kill_executor,
    "host": _kill_host,
    "link": _cut_link,
    "gone": _abandon_host,
    "zombie": _wake_host,
    "checkpoint": _disturb_checkpoint,
    "disk": _fill_disk,
}  # all others are kills of the query's own processes


def inflict_on_hosts(site: HostSite, fault: Fault) -> FaultEffect:
    """Inflicts a fault on the hosts of a query; raises MissedError when it does not happen."""
    return _INFLICT.get(fault.victim, kill)(site, fault)
