"""One simulated query from its first epoch to the end of its last migration, with the faults of its seed."""

import hashlib
import json
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

from memory import RESULTS

from chaos.changes import Asking
from chaos.checks import check_homes, check_journals, check_recoveries, check_settled
from chaos.cluster import Cluster, JobFailed
from chaos.driver import SimulatedDriver, Topic
from chaos.fibers import Killed
from chaos.folders import folder_of_its_own
from chaos.host_parameters import goal_on
from chaos.oracle import Oracle
from chaos.outcome import Outcome
from chaos.parameters import Parameters
from chaos.patches import networked, simulated
from chaos.scaling import Scaling
from chaos.troubles import Troubles
from chaos.violation import Violation, require
from chaos.workload import Batch, Workload
from impls.driver.epochs import StopNeeded
from impls.durability.source import RestoreSource
from impls.store.environment import Store

_STARTS_MAX = 8


def simulate(parameters: Parameters) -> Outcome:
    """Runs a query in a folder of its own, in memory where the system has such a file system."""
    with folder_of_its_own() as folder:
        try:
            return Query(parameters, folder).run()
        finally:
            RESULTS.pop(str(folder / "state"), None)


class Query:
    """All of one run; `run` may be called once."""

    def __init__(self, parameters: Parameters, folder: Path):
        self._p, self._folder = parameters, folder
        for name in ("state", "copies", "scratch"):
            (folder / name).mkdir()
        self._workload = Workload(parameters)
        self._cluster = Cluster(parameters, self._workload.chained)
        self._troubles = Troubles(parameters, self._cluster, folder, lambda: self._driver)
        self._cluster.on_step = self._troubles.on_step
        self._random = Random(parameters.seed + 5)
        self._driver: Any = None
        self._topic = Topic(str(folder / "state"), self._cluster)
        self._events: list[Any] = []
        self._starts, self._recoveries, self.epoch = 0, 0, 0
        self._digest = hashlib.sha256(str(parameters).encode())
        kind, first = "chain" if self._workload.chained else "counts", self._workload.operator
        self._scaling = Scaling(parameters)
        self._asking = Asking(parameters.changes, first, kind, self._workload.recipes)

    def run(self) -> Outcome:
        """Runs to the end, or to the first violation."""
        violation, sentence, troubles = None, "", self._troubles
        with (
            simulated(self._cluster, self._p, troubles.hook, troubles.wrote, troubles.wiped),
            networked(self._cluster, troubles.network),
        ):
            try:
                with Store.open(self._folder / "scratch") as scratch:
                    topic, home = self._topic.name, troubles.home
                    self._oracle = Oracle(self._p, self._workload, topic, home, troubles.damage, scratch)
                    self._all_epochs()
            except Violation as error:
                violation, sentence = error.check, self._sentence(error)
            finally:
                self._cluster.kill_all()
                self._end()
        for part in (troubles.attempts.digest, self._oracle.results.digest):
            self._digest.update(part.digest())
        self._digest.update(json.dumps([str(f) for f in self._cluster.fired] + [self._cluster.steps]).encode())
        fired = Counter(fault.kind for fault in self._cluster.fired)
        return Outcome(
            self._p.seed, violation, sentence, self._digest.hexdigest(), self.epoch, self._starts, self._cluster.steps,
            fired, self._recoveries, troubles.network.seen,
        )  # fmt: skip

    def _sentence(self, error: Violation) -> str:
        faults, when = map(str, self._cluster.fired), f"in epoch {self.epoch}, start {self._starts}"
        return error.sentence(f"Seed {self._p.seed}", self._p, faults, when, folder=self._folder)

    # -- epochs -------------------------------------------------------------------------------------------------------

    def _all_epochs(self) -> None:
        self._start()
        while self.epoch < self._p.epochs or self._unsettled():
            asked = len(self._p.commands) + len(self._p.changes) + self._scaling.given
            last = self._p.epochs + 3 * self._p.bins * asked + 30
            require(self.epoch < last, "goal", f"{self._driver.controller.misplaced} bins are not at their goal")
            self._command()
            if self.epoch < self._p.epochs and not self._asking.ask(self._driver, self.epoch):
                self._start()
            self._one_epoch(self._workload.batch(self.epoch))
            self._scale()
            self.epoch += 1
            self._troubles.epoch = self.epoch
        self._oracle.files(self._driver.controller, self._driver.record.written, self._source())
        check_settled(self._p, self._driver.controller, self._events, self._scaling.given)
        self._asking.check_end(self._driver.controller.changing)

    def _unsettled(self) -> bool:
        controller = self._driver.controller
        return (self._p.mechanism != "none" and controller.migrating) or controller.changing.active

    def _command(self) -> None:
        for epoch, kind, value in self._p.commands:
            if epoch == self.epoch:
                goal, hosts = self._goal(kind, value)
                try:
                    self._driver.command("rebalance", goal, kind, hosts)
                except Killed:
                    self._start()

    def _scale(self) -> None:
        """Lets the policy rescale the query, as long as its load lasts; a driver that has just begun knows no epoch."""
        if self.epoch >= self._p.epochs or self._driver.record is None:
            return
        controller = self._driver.controller
        wanted = self._scaling.after(self._driver.record, self.epoch, migrating=controller.migrating)
        if wanted is not None:
            try:
                self._driver.command(
                    "rebalance", self._p.goal("rescale", wanted, controller.commanded), "autoscale", ()
                )
            except Killed:
                self._start()

    def _goal(self, kind: str, value: int) -> tuple[Any, tuple[str, ...]]:
        """Returns a command's goal and its hosts: kind "hosts" asks for as many workers as it names hosts."""
        controller, known = self._driver.controller, tuple(self._driver.servers)
        if kind != "hosts":
            return self._p.goal(kind, value, controller.commanded), ()
        if not known:
            return self._p.goal("rescale", value % 6 + 1, controller.commanded), ()
        hosts = tuple(name for number, name in enumerate(known) if value >> number & 1) or known[:1]
        return goal_on(controller, hosts, known), hosts

    def _one_epoch(self, batch: Batch) -> None:
        """Runs an epoch, and again after every crash, until it is committed; then everything is checked."""
        troubles, starts = self._troubles, 0
        troubles.strike(0)
        while not self._attempt(batch):
            starts += 1
            require(starts < _STARTS_MAX, "stuck", f"epoch {self.epoch} did not end after {starts} starts")
        record, controller = self._driver.record, self._driver.controller
        self._events += record.events
        self._asking.hear(record.events, controller.changing)
        self._recoveries += check_recoveries(self.epoch, self._driver, self._cluster, troubles.damage)
        if self._cluster.hosts is not None and not starts:  # one that is run again is observed already
            check_homes(self._driver, self._cluster.hosts)
        troubles.damage.hurt |= {worker for epoch, worker in self._cluster.haunted if epoch == self.epoch}
        self._oracle.check(controller, record.written, batch, self._source(), record.reports)
        known = {name: value for name, value in controller.to_json().items() if value or name not in {"homes", "hosts"}}
        for part in (self._oracle.results.digest.hexdigest(), known):
            self._digest.update(json.dumps(part, sort_keys=True).encode())
        if self.epoch % 6 == 5:
            check_journals(self._p, self._driver)
        troubles.keep_copies()
        if troubles.host_dies(committed=True):
            self._start()
        self._cluster.stroll(self.epoch)
        troubles.raise_broken()

    def _attempt(self, batch: Batch) -> bool:
        """Runs the epoch once and returns whether it is committed; a driver that has ended or died is replaced."""
        try:
            self._driver.run_epoch(batch, self.epoch)
            self._troubles.raise_broken()
            if not self._troubles.host_dies(committed=False):
                return True
        except StopNeeded as stop:
            if self._stop(stop.epoch) and self._random.random() < 0.5:
                return False
        except Killed:
            self._troubles.raise_broken()
        except JobFailed as error:
            self._troubles.raise_broken()
            require(len(error.errors) < 2, "stuck", str(error))
        except Violation:
            raise
        except Exception as error:
            raise Violation("driver", f"{type(error).__name__}: {error}") from error
        self._start()
        return False

    def _stop(self, epoch: int) -> bool:
        """The query has ended as its plan asked for; returns whether its driver lives to see it."""
        try:
            self._driver.stopped(epoch)
        except Killed:
            return False
        return True

    def _start(self) -> None:
        """A driver begins, when another one has ended or died."""
        if self._starts:
            self._scaling.restarted()
            self._end()
            self._tear_journal()
            self._troubles.strike_idle()
        self._starts += 1
        try:
            self._driver = SimulatedDriver(
                self._p, self._cluster, self._folder, self._workload.operator, self._topic
            )  # fmt: skip
        except Exception as error:
            raise Violation("driver", f"it does not start: {type(error).__name__}: {error}") from error

    def _end(self) -> None:
        if self._driver is not None:
            self._driver.close()

    def _tear_journal(self) -> None:
        """Leaves half a line at the end of a journal, as a process does that dies while it writes."""
        if self._random.random() < 0.3:
            name = self._random.choice(("plan", "observed", "commands"))
            with (self._folder / "checkpoint" / "rescale" / f"{name}.log").open("ab") as file:
                file.write(b'0badcafe {"epoch":'[: self._random.randint(1, 18)])

    def _source(self) -> RestoreSource | None:
        driver = self._driver
        if driver.files is None:
            return None
        return RestoreSource(driver.files, driver.checkpoint.query, self._p.bins, self._workload.operator)
