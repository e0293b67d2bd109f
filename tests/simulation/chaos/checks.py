"""What must hold of the driver: its journals, its recoveries, its migrations."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from chaos.cluster import Cluster
from chaos.damage import Damage
from chaos.driver import SimulatedDriver
from chaos.hosts import Hosts
from chaos.parameters import Parameters
from chaos.violation import require
from impls.placement import initial
from impls.protocol.controller import Controller
from impls.protocol.events import Command, MigrationBegun, MigrationDone
from impls.protocol.plan import WrittenPlan
from impls.protocol.versions import Change
from impls.protocol.view import Observation

_DEADLY = 2  # attempts that die in an environment before the next one makes another


def check_settled(parameters: Parameters, controller: Controller, events: Iterable[Any], rescales: int) -> None:
    """Requires that the last goal is reached and every migration has begun and ended; `rescales` are a policy's."""
    if parameters.mechanism == "none":
        first = initial(parameters.bins, parameters.workers)
        require(np.array_equal(controller.location, first), "goal", "bins moved")
        return
    require(controller.misplaced == 0 and not controller.queued.any(), "goal", "bins are misplaced or have queues")
    begun = {event.id for event in events if isinstance(event, MigrationBegun)}
    ended = {event.id for event in events if isinstance(event, MigrationDone)}
    asked = len(parameters.commands) + rescales
    require(len(begun) == asked, "goal", f"{len(begun)} migrations of {asked} began")
    require(begun == ended, "goal", f"the migrations {sorted(begun - ended)} have no end")


def check_recoveries(epoch: int, driver: SimulatedDriver, cluster: Cluster, damage: Damage) -> int:
    """Requires a cause for every environment rebuilt in an epoch and returns how many there are.

    A zombie that takes an environment away would make a recovery necessary that has none.
    """
    recovered = [report for report in driver.record.reports if report.recovered]
    for report in recovered:
        here = (epoch, report.worker)
        cause = report.worker in damage.hurt or damage.flipped
        cause = cause or (cluster.hosts is not None and here in cluster.hosts.moved)
        cause = cause or bool("two attempts" in report.recovered and cluster.deaths[here])
        # of two attempts the second gives up an environment that the first keeps locked, and may die while it makes
        # one; and so may the third, behind two that have died
        given_up = "does not end" in report.recovered or report.recovered == "missing"
        cause = cause or (given_up and (here in cluster.haunted or cluster.deaths[here] > _DEADLY))
        require(cause, "recovery", f"worker {report.worker} was rebuilt without a cause: {report.recovered}")
    return len(recovered)


def check_journals(parameters: Parameters, driver: SimulatedDriver) -> None:
    """Requires that the journals give the controller that is there."""
    checkpoint, live = driver.checkpoint, driver.controller
    again = parameters.make_controller()
    if checkpoint.base is not None:
        again.restore(checkpoint.base.controller)
    again.replay(
        [WrittenPlan.from_json(entry) for entry in checkpoint.read("plan")],
        [Observation.from_json(entry) for entry in checkpoint.read("observed")],
        [_command_of(entry) for entry in checkpoint.read("commands")],
    )
    ours, theirs = ({"changing": None, **known.to_json()} for known in (again, live))
    ours.pop("times"), theirs.pop("times")  # milliseconds are rounded in the journal
    differ = sorted(name for name in theirs if ours[name] != theirs[name])
    require(not differ, "replay", f"the journals give another controller: {', '.join(differ)}")


def _command_of(entry: dict[str, Any]) -> Command | Change:
    return Change.from_json(entry) if entry["kind"] == "change" else Command.from_json(entry)


def check_homes(driver: SimulatedDriver, hosts: Hosts) -> None:
    """Requires that each worker's home is the host that it ran on."""
    for report in driver.record.reports:
        home = driver.controller.homes.get(report.worker)
        require(home == report.host, "homes", f"worker {report.worker} ran on {report.host}, its home is {home}")
        require(report.host in hosts.names, "homes", f"worker {report.worker} ran on {report.host}")
