"""Spark's part, simulated: stages of tasks, attempts that are retried, run twice, die, or hang and wake later."""

from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import numpy as np

from chaos.fibers import Clock, Fiber, Killed
from chaos.hosts import Hosts
from chaos.parameters import Fault, Parameters
from chaos.stage import Attempt, Stage
from chaos.workload import Batch
from impls.protocol.order import EpochOrder
from impls.protocol.report import Report
from impls.worker.attempts import run_epoch
from impls.worker.query import QuerySpec, Task

ATTEMPTS = 4
_STEPS_MAX = 20_000
_ZOMBIES_MAX = 4


class JobFailed(Exception):  # noqa: N818
    """A task has failed as often as Spark lets it; `errors` are the failures that no fault explains."""

    def __init__(self, worker: int, errors: list[str]):
        super().__init__(f"worker {worker}: {'; '.join(errors) or 'killed'}")
        self.worker, self.errors = worker, errors


class Cluster:
    """Runs stages, one attempt at a time; an attempt hands over at every point it comes to, or goes on, by the seed.

    Attributes:
        clock: the simulated time.
        current: the attempt that runs, None for the driver.
        zombies: attempts that hang, or that live on although nobody waits for them.
        fired: the faults that have happened.
        deaths: by (epoch, worker), attempts that died or hung.
        haunted: (epoch, worker) where more than one attempt of the worker lived.
        on_step: called before every step of a stage.
        hosts: on which attempts run, None where there is only one.
    """

    def __init__(self, parameters: Parameters, chained: bool):
        self._p, self._chained = parameters, chained
        self._random = Random(parameters.seed + 2)
        self.clock = Clock(Random(parameters.seed + 3), self._waited)
        self.current: Attempt | None = None
        self.zombies: list[Attempt] = []
        self.fired: list[Fault] = []
        self.deaths: Counter[tuple[int, int]] = Counter()
        self.on_step: Callable[[int, int], None] = lambda _epoch, _step: None
        self.steps = 0
        self.haunted: set[tuple[int, int]] = set()
        self._used: Counter[Fault] = Counter()
        self.hosts = Hosts(parameters) if parameters.hosts else None
        self._stage: Stage | None = None

    # -- what an attempt comes to -------------------------------------------------------------------------------------

    def point(self, name: str) -> None:
        """A point in the code of an attempt: here it may die, hang, or hand over."""
        attempt = self.current
        if attempt is None:
            return
        attempt.fiber.die_if_killed()
        attempt.points += 1
        fault = attempt.fault
        if fault is not None and fault.at == attempt.points and fault.kind in {"die", "hang"}:
            self.deaths[attempt.epoch, attempt.worker] += 1
            if fault not in self.fired:
                self.fired.append(fault)
            if fault.kind == "die":
                attempt.fiber.killed = True  # code that cleans up comes to no point either
                raise Killed
            attempt.wakes = attempt.epoch + fault.times
            attempt.fiber.pause()
        elif self._random.random() < self._p.switch:
            attempt.fiber.pause()

    def die_if_killed(self) -> None:
        """A point at which an attempt neither waits nor dies, but goes no further when it is dead."""
        if self.current is not None:
            self.current.fiber.die_if_killed()

    def _waited(self) -> None:
        if self.current is not None:
            self.current.fiber.pause()

    def _resume(self, attempt: Attempt) -> None:
        self.steps += 1
        self.current = attempt
        try:
            attempt.fiber.resume()
        finally:
            self.current = None

    def _kill(self, attempt: Attempt) -> None:
        self.current = attempt
        try:
            attempt.fiber.kill()
        finally:
            self.current = None

    # -- stages -------------------------------------------------------------------------------------------------------

    def run(
        self, spec: QuerySpec, order: EpochOrder, batch: Batch, anchor: Sequence[str] = (), seat_of: Sequence[int] = ()
    ) -> list[tuple[Report, np.ndarray]]:
        """Runs a task per worker and returns their answers; raises JobFailed, or Killed when the driver dies.

        On hosts a task is a seat: `anchor` has the host of each, and `seat_of` that to which a worker's records go.
        """
        self.haunted |= {(order.written.epoch, zombie.worker) for zombie in self.zombies}
        tasks = [task for task, worker in enumerate(order.seating.seats or range(order.written.workers)) if worker >= 0]
        stage = self._stage = Stage(spec, order, batch, self._random.sample(tasks, len(tasks)), anchor, seat_of)
        try:
            while len(stage.rows) < len(tasks):
                self._step(stage)
        except BaseException:
            self._leave(stage.running)
            raise
        finally:
            self._stage = None
        self._leave(stage.running)
        self.stroll(order.written.epoch)
        return [stage.rows[task] for task in sorted(stage.rows)]

    def _step(self, stage: Stage) -> None:
        epoch, stage.steps = stage.order.written.epoch, stage.steps + 1
        if stage.steps > _STEPS_MAX:
            raise JobFailed(-1, [f"no end after {_STEPS_MAX} steps"])
        while stage.waiting and len(stage.running) < self._p.slots:
            self._launch(stage, stage.waiting.pop(0))
        self.on_step(epoch, stage.steps)
        if not (able := stage.running + self._awake(epoch)):
            return  # all were lost with their hosts
        attempt = self._random.choice(able)
        self._resume(attempt)
        if attempt in self.zombies:
            self._bury(attempt)
        elif attempt.fiber.done:
            self._ended(stage, attempt)
        elif attempt.wakes >= 0:
            stage.running.remove(attempt)
            self._haunt(attempt)
            self._again(stage, attempt, "")

    def _launch(self, stage: Stage, task: int) -> None:
        number, epoch, worker = stage.attempts[task], stage.order.written.epoch, stage.worker_of(task)
        stage.attempts[task] += 1
        tables = stage.batch.tables(stage.order.written.plan, worker, self._random, chained=self._chained)
        if not stage.gets_records(task):
            tables = []
        host = self.hosts.place(stage.order, worker, stage.anchor[task]) if self.hosts else ""

        def body() -> Any:
            self.point("task")
            return run_epoch(Task(stage.spec, stage.order, worker, number, host), tables)

        fault = self._fault_of(epoch, worker, number, stage.order.written.workers)
        generation = stage.order.generation
        stage.running.append(Attempt(worker, number, epoch, fault, Fiber(body), task, host, generation))
        if fault is not None and fault.kind == "twice":
            self.fired.append(fault)
            self.haunted.add((epoch, worker))
            self._launch(stage, task)

    def _fault_of(self, epoch: int, worker: int, number: int, workers: int) -> Fault | None:
        for fault in self._p.faults:
            if fault.epoch == epoch and fault.worker % workers == worker and fault.kind in {"die", "hang", "twice"}:
                times = fault.times if fault.kind == "die" else 1
                if number < times and self._used[fault] < times:
                    self._used[fault] += 1
                    return fault
        return None

    def _ended(self, stage: Stage, attempt: Attempt) -> None:
        stage.running.remove(attempt)
        error = attempt.fiber.error
        if error is None:
            report, cells = attempt.fiber.answer
            stage.rows.setdefault(attempt.task, (Report.from_json(report.to_json()), cells))
        elif attempt.task not in stage.rows:
            self._again(stage, attempt, "" if isinstance(error, Killed) else f"{type(error).__name__}: {error}")

    def _again(self, stage: Stage, attempt: Attempt, why: str) -> None:
        task = attempt.task
        stage.failures[task] += 1
        if why:
            stage.errors.setdefault(task, []).append(why)
        if stage.failures[task] >= ATTEMPTS:
            raise JobFailed(attempt.worker, stage.errors.get(task, []))
        if all(other.task != task for other in stage.running):
            stage.waiting.append(task)

    def lose(self, host: str, wakes: int | None = None) -> None:
        """A host is lost: its attempts are dead, or, where it is only cut off, go on from an epoch on, unawaited."""
        if wakes is None:
            for zombie in [zombie for zombie in self.zombies if zombie.host == host]:
                self.zombies.remove(zombie)
                self._kill(zombie)
        stage = self._stage
        for attempt in [one for one in stage.running if one.host == host] if stage else []:
            stage.running.remove(attempt)
            self.deaths[attempt.epoch, attempt.worker] += 1
            if wakes is None:
                self._kill(attempt)
            else:
                attempt.wakes = wakes
                self._haunt(attempt)
            if attempt.task not in stage.rows:
                self._again(stage, attempt, "")

    # -- zombies ------------------------------------------------------------------------------------------------------

    def _leave(self, attempts: list[Attempt]) -> None:
        """Nobody waits for these any more: they die, or live on, except where nothing survives a lock that is kept."""
        lingering = 0.0 if self._p.durability == "none" else 0.5
        for attempt in attempts:
            if self._random.random() < lingering:
                attempt.wakes = attempt.epoch + self._random.choice((0, 1, 3))
                self._haunt(attempt)
            else:
                self._kill(attempt)

    def _haunt(self, attempt: Attempt) -> None:
        self.zombies.append(attempt)
        self.haunted.add((attempt.epoch, attempt.worker))
        if len(self.zombies) > _ZOMBIES_MAX:
            self._kill(self.zombies.pop(0))

    def _awake(self, epoch: int) -> list[Attempt]:
        return [zombie for zombie in self.zombies if zombie.wakes <= epoch]

    def _bury(self, zombie: Attempt) -> None:
        if zombie.fiber.done:
            self.zombies.remove(zombie)

    def stroll(self, epoch: int) -> None:
        """Between two stages zombies that are awake go on for a while."""
        for zombie in self._awake(epoch):
            for _ in range(self._random.choice((0, 1, 5, 50))):
                if not zombie.fiber.done:
                    self._resume(zombie)
            self._bury(zombie)

    def kill_all(self) -> None:
        """Kills every attempt there is, as the failure of the host does."""
        while self.zombies:
            self._kill(self.zombies.pop())
