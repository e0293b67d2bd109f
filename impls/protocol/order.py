"""What one epoch asks of every worker and what they answer.

It separates the driver from what runs the workers' steps: Spark's micro-batches, or this process.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from impls.protocol.plan import WrittenPlan
from impls.protocol.report import Report
from impls.protocol.seats import ONE_HOST, Seating
from impls.protocol.versions import Code


@dataclass(frozen=True)  # without slots, which pickle restores by one call per field in every worker and epoch
class EpochOrder:
    """What differs from epoch to epoch, the same for all workers; each picks its part by its number.

    Attributes:
        written: the plan of the epoch.
        generation: that of the driver that runs the epoch; an environment of a later one is refused.
        first: the query's first epoch: environments are created and filled.
        fresh: workers that own nothing and may start from an empty environment.
        elsewhere: (bin, worker) of the bins whose state is not yet where the epoch routes them, with the worker that
            has it; pulls of this epoch included.
        replicas: (bin, worker, epoch) of the replicas there are.
        queued: (bin, records) of the queues when the epoch begins, each at the worker that the epoch routes its bin to.
        sizes: (bin, bytes) of the bins that the plan pulls, as last observed.
        snapshot: bins to snapshot at the end of the epoch.
        moving: bins that the migration under way moves (their latency is kept apart).
        check_frame: the driver has just started: each worker makes sure that its last changelog frame is there.
        seating: where the workers sit on a cluster.
        codes: versions of the pipeline that the epoch may need, version 0 excepted, which the workers know.
    """

    written: WrittenPlan
    generation: int = 0
    first: bool = False
    fresh: tuple[int, ...] = ()
    elsewhere: tuple[tuple[int, int], ...] = ()
    replicas: tuple[tuple[int, int, int], ...] = ()
    queued: tuple[tuple[int, int], ...] = ()
    sizes: tuple[tuple[int, int], ...] = ()
    snapshot: tuple[int, ...] = ()
    moving: tuple[int, ...] = ()
    check_frame: bool = False
    seating: Seating = ONE_HOST
    codes: tuple[Code, ...] = ()

    def location_of(self, bin_: int) -> int:
        """Returns the worker that holds a bin's state when the epoch begins."""
        return dict(self.elsewhere).get(bin_, int(self.written.plan.routing[bin_]))

    def states_at(self, worker: int) -> dict[int, int]:
        """Returns the bins whose state the worker holds when the epoch begins, each with the worker."""
        elsewhere = dict(self.elsewhere)
        routing = self.written.plan.routing
        own = [bin_ for bin_ in np.flatnonzero(routing == worker).tolist() if bin_ not in elsewhere]
        return dict.fromkeys(sorted([*own, *(bin_ for bin_, at in elsewhere.items() if at == worker)]), worker)


@dataclass(frozen=True, slots=True)
class Answers:
    """What the workers of an epoch answered.

    Attributes:
        reports: one per worker, ascending.
        cells: latency cells by worker, dtype `impls.worker.cells.CELL`.
        build_ms: milliseconds until the epoch's work was on its way to the workers.
        job_ms: milliseconds from then on until all had answered.
        sink_ms: milliseconds that a function of the user's took with their results behind that.
    """

    reports: list[Report]
    cells: dict[int, NDArray[np.void]]
    build_ms: float
    job_ms: float
    sink_ms: float = 0.0

    @classmethod
    def of(cls, rows: list[tuple[Report, NDArray[np.void]]], *, build_ms: float, job_ms: float) -> "Answers":
        """Returns the answers of workers, given in any order."""
        rows = sorted(rows, key=lambda row: row[0].worker)
        return cls([report for report, _ in rows], {report.worker: found for report, found in rows}, build_ms, job_ms)


class Executor(Protocol):
    """Runs the step of every worker of an order. What is constant for the query's life it knows already."""

    @property
    def servers(self) -> Mapping[str, str]:
        """By host that can have workers the address at which it hands out bins, "" for an unknown one.

        Empty where there is only one host.
        """

    def run(self, order: EpochOrder, batch: Any) -> Answers:
        """Runs an epoch, or its like, and returns when every worker of the plan has answered.

        Args:
            order: what the workers are to do.
            batch: the epoch's records as the executor takes them: a DataFrame of Spark's, a table in this process,
                nothing where workers read records by themselves.

        Raises:
            StateError: a worker's stored state does not fit the epoch.
        """
