"""The seam between the driver and what runs the workers' steps: Spark's micro-batches, or this process."""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from impls.protocol.order import EpochOrder
from impls.protocol.report import Report

__all__ = ["Answers", "Executor"]


@dataclass(frozen=True, slots=True)
class Answers:
    """What the workers of an epoch answered.

    Attributes:
        reports: one per worker, ascending.
        cells: latency cells by worker, dtype `impls.worker.cells.CELL`.
        build_ms: milliseconds until the epoch's work was on its way to the workers.
        job_ms: milliseconds from then on until all had answered.
    """

    reports: list[Report]
    cells: dict[int, NDArray[np.void]]
    build_ms: float
    job_ms: float

    @classmethod
    def of(cls, rows: list[tuple[Report, NDArray[np.void]]], *, build_ms: float, job_ms: float) -> "Answers":
        """Returns the answers of workers, given in any order."""
        rows = sorted(rows, key=lambda row: row[0].worker)
        return cls([report for report, _ in rows], {report.worker: found for report, found in rows}, build_ms, job_ms)


class Executor(Protocol):
    """Runs the step of every worker of an order. What is constant for the query's life it knows already."""

    def run(self, order: EpochOrder, batch: Any) -> Answers:
        """Runs an epoch, or its like, and returns when every worker of the plan has answered.

        Args:
            order: what the workers are to do.
            batch: the epoch's records as the executor takes them: a DataFrame of Spark's, a table in this process,
                nothing where workers read records by themselves.

        Raises:
            StateError: a worker's stored state does not fit the epoch.
        """
