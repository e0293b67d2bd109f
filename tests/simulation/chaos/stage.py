"""A job under way: the attempts of its tasks, and what has come of them."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from chaos.fibers import Fiber
from chaos.parameters import Fault
from chaos.workload import Batch
from impls.protocol.order import EpochOrder
from impls.protocol.report import Report
from impls.worker.query import QuerySpec


@dataclass(eq=False)
class Attempt:
    """One attempt of a worker's task.

    Attributes:
        fault: what befalls it at point `fault.at`, if anything does.
        wakes: for one that hangs, the epoch in which it goes on.
        task: the partition that it is an attempt of; host: where it runs, generation: of the driver that waits for it.
    """

    worker: int
    number: int
    epoch: int
    fault: Fault | None
    fiber: Fiber
    task: int
    host: str = ""
    generation: int = 0
    points: int = 0
    wakes: int = -1


class Stage:
    """A job under way: tasks that wait for a place, attempts that run, and what came of them."""

    def __init__(
        self, spec: QuerySpec, order: EpochOrder, batch: Batch, waiting: list[int], anchor: Sequence[str],
        seat_of: Sequence[int],
    ):  # fmt: skip
        self.spec, self.order, self.batch, self.waiting = spec, order, batch, waiting
        self.anchor, self._seat_of = anchor, seat_of
        self.running: list[Attempt] = []
        self.attempts: Counter[int] = Counter()
        self.failures: Counter[int] = Counter()
        self.errors: dict[int, list[str]] = {}
        self.rows: dict[int, tuple[Report, np.ndarray]] = {}
        self.steps = 0

    def worker_of(self, task: int) -> int:
        """Returns the worker whose task it is: a partition is a seat, where there are seats."""
        return self.order.seating.seats[task] if self.order.seating.seats else task

    def gets_records(self, task: int) -> bool:
        """Returns whether its worker's records go to a task."""
        return not self._seat_of or self._seat_of[self.worker_of(task)] == task
