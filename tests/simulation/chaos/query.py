"""One simulated query from its first epoch to the end of its last migration, with the faults of its seed."""

import hashlib
import json
import shutil
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from memory import RESULTS, MemoryOutput

from chaos.cluster import Cluster, JobFailed
from chaos.damage import Damage
from chaos.driver import SimulatedDriver
from chaos.fibers import Killed
from chaos.oracle import Attempts, Oracle, Violation, require
from chaos.parameters import Fault, Parameters
from chaos.patches import simulated
from chaos.workload import Batch, Workload
from impls.durability.restore import Source
from impls.errors import StateError
from impls.placement import initial
from impls.runtime.commands import Command
from impls.runtime.controller import Controller
from impls.runtime.driver import StopNeeded
from impls.runtime.events import MigrationBegun, MigrationDone
from impls.runtime.observation import Observation
from impls.runtime.plan import WrittenPlan
from impls.runtime.records import Results
from impls.runtime.store import Store, read_meta

_SHARED_MEMORY = Path("/dev/shm")
_STARTS_MAX = 4


class Topic(MemoryOutput):
    """Results in memory; an attempt may die, or hand over, when half of an epoch's results are sent."""

    def __init__(self, name: str, cluster: Cluster):
        super().__init__(name)
        self._cluster = cluster

    def send(self, results: Results, *, worker: int, generation: int, epoch: int) -> None:
        half = len(results.keys) // 2
        for index, (key, value) in enumerate(zip(results.keys, results.payloads, strict=True)):
            if index == half:
                self._cluster.point("sending")
            RESULTS[self.name].append((worker, epoch, index, key, value))
        self._cluster.point("sent")


@dataclass(frozen=True)
class Outcome:
    """How a run ended.

    Attributes:
        violation: None, or the check that failed; `sentence` says all.
        digest: of everything that was sent, written and observed.
        epochs, starts, steps: how many.
        fired: faults that happened, by kind.
        recoveries: environments rebuilt.
    """

    seed: int
    violation: str | None
    sentence: str
    digest: str
    epochs: int
    starts: int
    steps: int
    fired: Counter[str]
    recoveries: int


def simulate(parameters: Parameters) -> Outcome:
    """Runs a query in a folder of its own, in memory where the system has such a file system."""
    where = _SHARED_MEMORY if _SHARED_MEMORY.is_dir() else None
    folder = Path(tempfile.mkdtemp(prefix="simulated-", dir=where))
    try:
        return Query(parameters, folder).run()
    finally:
        RESULTS.pop(str(folder / "state"), None)
        shutil.rmtree(folder, ignore_errors=True)


class Query:
    """All of one run; `run` may be called once."""

    def __init__(self, parameters: Parameters, folder: Path):
        self._p, self._folder = parameters, folder
        for name in ("state", "copies", "scratch"):
            (folder / name).mkdir()
        self._workload = Workload(parameters)
        self._cluster = Cluster(parameters, self._workload.chained)
        self._cluster.on_step = self._on_step
        self._random = Random(parameters.seed + 5)
        self._damage = Damage(folder / "state", folder / "copies", Random(parameters.seed + 6))
        self._attempts = Attempts()
        self._driver: Any = None
        self._broken: Violation | None = None
        self._topic = Topic(str(folder / "state"), self._cluster)
        self._events: list[Any] = []
        self._come: Counter[tuple[int, str]] = Counter()
        self._starts, self._recoveries, self.epoch = 0, 0, 0
        self._digest = hashlib.sha256(str(parameters).encode())

    def run(self) -> Outcome:
        """Runs to the end, or to the first violation."""
        violation, sentence = None, ""
        with simulated(self._cluster, self._p.seed, self._hook, self._wrote, self._wiped, self._p.base_epochs):
            try:
                with Store.open(self._folder / "scratch") as scratch:
                    self._oracle = Oracle(self._p, self._workload, self._folder / "state", self._damage, scratch)
                    self._all_epochs()
            except Violation as error:
                violation, sentence = error.check, self._sentence(error)
            finally:
                self._cluster.kill_all()
                self._end()
        for part in (self._attempts.digest, self._oracle.results.digest):
            self._digest.update(part.digest())
        self._digest.update(json.dumps([str(f) for f in self._cluster.fired] + [self._cluster.steps]).encode())
        fired = Counter(fault.kind for fault in self._cluster.fired)
        return Outcome(
            self._p.seed, violation, sentence, self._digest.hexdigest(), self.epoch, self._starts, self._cluster.steps,
            fired, self._recoveries,
        )  # fmt: skip

    def _sentence(self, error: Violation) -> str:
        faults = ", ".join(str(fault) for fault in self._cluster.fired) or "none"
        what = str(error).replace(str(self._folder), "").rstrip(".")
        return (
            f"Seed {self._p.seed} ({self._p}; faults so far: {faults}) violates {error.check!r} in epoch {self.epoch}, "
            f"start {self._starts}: {what}."
        )

    # -- epochs -------------------------------------------------------------------------------------------------------

    def _all_epochs(self) -> None:
        self._start()
        last = self._p.epochs + 3 * self._p.bins * len(self._p.commands) + 10
        while self.epoch < self._p.epochs or self._unsettled():
            require(self.epoch < last, "goal", f"{self._driver.controller.misplaced} bins are not at their goal")
            self._command()
            self._one_epoch(self._workload.batch(self.epoch))
            self.epoch += 1
        self._oracle.files(self._driver.controller, self._written, self._source())
        self._settled()

    def _unsettled(self) -> bool:
        return self._p.mechanism != "none" and self._driver.controller.migrating

    def _settled(self) -> None:
        controller = self._driver.controller
        if self._p.mechanism == "none":
            require(np.array_equal(controller.location, initial(self._p.bins, self._p.workers)), "goal", "bins moved")
            return
        require(controller.misplaced == 0 and not controller.queued.any(), "goal", "bins are misplaced or have queues")
        begun = {event.id for event in self._events if isinstance(event, MigrationBegun)}
        ended = {event.id for event in self._events if isinstance(event, MigrationDone)}
        require(
            len(begun) == len(self._p.commands), "goal", f"{len(begun)} migrations of {len(self._p.commands)} began"
        )
        require(begun == ended, "goal", f"the migrations {sorted(begun - ended)} have no end")

    def _command(self) -> None:
        for epoch, kind, value in self._p.commands:
            if epoch == self.epoch:
                goal = self._p.goal(kind, value, self._driver.controller.commanded)
                try:
                    self._driver.command("rebalance", goal, kind)
                except Killed:
                    self._start()

    def _one_epoch(self, batch: Batch) -> None:
        """Runs an epoch, and again after every crash, until it is committed; then everything is checked."""
        self._strike(0)
        starts = 0
        while not self._attempt(batch):
            starts += 1
            require(starts < _STARTS_MAX * 2, "stuck", f"epoch {self.epoch} did not end after {starts} starts")
        written, controller = self._driver.record.written, self._driver.controller
        self._written = written
        self._events += self._driver.record.events
        self._explained()
        self._damage.hurt |= {worker for epoch, worker in self._cluster.haunted if epoch == self.epoch}
        self._oracle.check(controller, written, batch, self._source())
        for part in (self._oracle.results.digest.hexdigest(), controller.to_json()):
            self._digest.update(json.dumps(part, sort_keys=True).encode())
        if self.epoch % 6 == 5:
            self._replays()
        self._keep_copies()
        self._host(committed=True)
        self._cluster.stroll(self.epoch)
        self._raise_broken()

    def _attempt(self, batch: Batch) -> bool:
        """Runs the epoch once and returns whether it is committed."""
        try:
            self._driver.run_epoch(batch, self.epoch)  # type: ignore[arg-type]
            self._raise_broken()
            return not self._host(committed=False)
        except StopNeeded as stop:
            self._driver.stopped(stop.epoch)
            if self._random.random() < 0.5:
                self._start()
        except Killed:
            self._raise_broken()
            self._start()
        except JobFailed as error:
            self._raise_broken()
            require(len(error.errors) < 2, "stuck", str(error))
            self._start()
        except Violation:
            raise
        except Exception as error:
            raise Violation("driver", f"{type(error).__name__}: {error}") from error
        return False

    def _start(self) -> None:
        """A driver begins, when another one has ended or died."""
        if self._starts:
            self._end()
            self._tear_journal()
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

    def _source(self) -> Source:
        driver = self._driver
        return Source(driver.files, driver.checkpoint.query, self._p.bins, self._workload.operator)

    # -- faults -------------------------------------------------------------------------------------------------------

    def _due(self, *kinds: str) -> list[Fault]:
        fired = self._cluster.fired
        return [f for f in self._p.faults if f.epoch == self.epoch and f.kind in kinds and f not in fired]

    def _workers(self) -> int:
        controller = self._driver.controller
        return 1 + int(max(controller.routing.max(), controller.location.max()))

    def _hook(self, point: str, _context: dict[str, Any]) -> None:
        if self._cluster.current is not None:
            self._cluster.point(point)
            return
        self._come[self.epoch, point] += 1
        for fault in self._due("driver"):
            if fault.point == point and fault.at == self._come[self.epoch, point]:
                self._die(fault)

    def _die(self, fault: Fault) -> None:
        self._cluster.fired.append(fault)
        raise Killed

    def _on_step(self, _epoch: int, step: int) -> None:
        self._raise_broken()
        self._strike(step)
        for fault in self._due("driver"):
            if fault.point == "job" and fault.at == step:
                self._die(fault)

    def _strike(self, step: int) -> None:
        for fault in self._due("lose", "stale", "flip"):
            if fault.at == step and self._damage.strike(fault, fault.worker % self._workers()):
                self._cluster.fired.append(fault)

    def _keep_copies(self) -> None:
        for fault in self._p.faults:
            if fault.kind == "stale":
                self._damage.keep(fault, self.epoch, fault.worker % self._workers())

    def _host(self, *, committed: bool) -> bool:
        """The host dies, if it is to die now: every process with it, and the last frames are torn."""
        for fault in self._due("host"):
            if bool(fault.at) == committed:
                self._cluster.fired.append(fault)
                self._cluster.kill_all()
                self._damage.tear(self._driver.files, self.epoch, self._driver.record.written.workers)
                self._start()
                return True
        return False

    def _wiped(self, path: Path) -> None:
        """An attempt takes an environment away: never one that is ahead of it."""
        attempt = self._cluster.current
        try:
            with Store.open(path, create=False) as store, store.reading() as txn:
                meta = read_meta(txn)
        except StateError:
            return
        if attempt is not None and meta is not None and meta.epoch > attempt.epoch:
            what = (
                f"an attempt of epoch {attempt.epoch} takes away worker {attempt.worker}'s state of epoch {meta.epoch}"
            )
            self._broken = self._broken or Violation("zombie", what)

    def _wrote(self, name: str, data: bytes) -> None:
        if self._cluster.current is None:
            return
        try:
            self._attempts.wrote(name, data)
        except Violation as error:
            self._broken = self._broken or error

    def _raise_broken(self) -> None:
        if self._broken is not None:
            raise self._broken

    # -- checks of the driver -----------------------------------------------------------------------------------------

    def _explained(self) -> None:
        """No environment is rebuilt without a cause, as a zombie that takes it away would make necessary."""
        for report in self._driver.record.reports:
            if not report.recovered:
                continue
            self._recoveries += 1
            here = (self.epoch, report.worker)
            cause = report.worker in self._damage.hurt or self._damage.flipped
            cause = cause or ("two attempts" in report.recovered and self._cluster.deaths[here])
            cause = cause or ("does not end" in report.recovered and here in self._cluster.haunted)
            require(bool(cause), "recovery", f"worker {report.worker} was rebuilt without a cause: {report.recovered}")

    def _replays(self) -> None:
        """The journals give the controller that is there."""
        checkpoint, live = self._driver.checkpoint, self._driver.controller
        again = Controller(initial(self._p.bins, self._p.workers), self._p.make_mechanism())
        if checkpoint.base is not None:
            again.restore(checkpoint.base.controller)
        again.replay(
            [WrittenPlan.from_json(entry) for entry in checkpoint.read("plan")],
            [Observation.from_json(entry) for entry in checkpoint.read("observed")],
            [Command.from_json(entry) for entry in checkpoint.read("commands")],
        )
        ours, theirs = again.to_json(), live.to_json()
        ours.pop("times"), theirs.pop("times")  # milliseconds are rounded in the journal
        differ = sorted(name for name in theirs if ours[name] != theirs[name])
        require(not differ, "replay", f"the journals give another controller: {', '.join(differ)}")
