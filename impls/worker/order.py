"""What one epoch asks of every worker, and what a worker answers."""

from dataclasses import dataclass

import numpy as np

from impls.durability.files import Files
from impls.durability.restore import Source
from impls.operators.base import Operator
from impls.protocol.plan import WrittenPlan
from impls.protocol.shared import Shared
from impls.worker.output import Output

__all__ = ["StepOrder"]


@dataclass(frozen=True)  # without slots, which pickle restores by one call per field in every worker and epoch
class StepOrder:
    """The same for all workers of an epoch; each picks its part by its number.

    Attributes:
        query: identity of the query; an environment of another query is refused.
        written: the plan of the epoch.
        bins: number of bins.
        operator: the keyed operator.
        output: where results go.
        state_dir: folder of the workers' environments on each host.
        first: the query's first epoch: environments are created and filled.
        fresh: workers that own nothing and may start from an empty environment.
        away: (bin, worker) of the bins whose state is not yet where the epoch routes them, with the worker that has it;
            pulls of this epoch included.
        replicas: (bin, worker, epoch) of the replicas there are.
        queued: (bin, records) of the queues when the epoch begins, each at the worker that the epoch routes its bin to.
        sizes: (bin, bytes) of the bins that the plan pulls, as last observed.
        generation: that of the driver that runs the epoch; an environment of a later one is refused.
        files: the durable files of the query; None for durability "none".
        snapshot: bins to snapshot at the end of the epoch.
        heal: the driver has just started: each worker makes sure that its last changelog frame is there.
        moving: bins that the migration under way moves (their latency is kept apart).
        shared: the store that all workers share; None when each has an environment of its own.
    """

    query: str
    written: WrittenPlan
    bins: int
    operator: Operator
    output: Output
    state_dir: str
    first: bool = False
    fresh: tuple[int, ...] = ()
    away: tuple[tuple[int, int], ...] = ()
    replicas: tuple[tuple[int, int, int], ...] = ()
    queued: tuple[tuple[int, int], ...] = ()
    sizes: tuple[tuple[int, int], ...] = ()
    generation: int = 0
    files: Files | None = None
    snapshot: tuple[int, ...] = ()
    heal: bool = False
    moving: tuple[int, ...] = ()
    shared: Shared | None = None

    @property
    def fsync(self) -> bool:
        """Whether what is committed must survive the failure of its host."""
        return self.files is not None and self.files.fsync

    def location_of(self, bin_: int) -> int:
        """Returns the worker that holds a bin's state when the epoch begins."""
        return dict(self.away).get(bin_, int(self.written.plan.routing[bin_]))

    def states_at(self, worker: int) -> dict[int, int]:
        """Returns the bins whose state the worker holds when the epoch begins, each with the worker."""
        away = dict(self.away)
        routing = self.written.plan.routing
        own = [bin_ for bin_ in np.flatnonzero(routing == worker).tolist() if bin_ not in away]
        return dict.fromkeys(sorted([*own, *(bin_ for bin_, at in away.items() if at == worker)]), worker)

    def source(self) -> Source | None:
        """Returns where bins can be restored from, None for durability "none"."""
        return None if self.files is None else Source(self.files, self.query, self.bins, self.operator)
