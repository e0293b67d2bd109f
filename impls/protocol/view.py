"""What a mechanism sees of the query at the start of an epoch."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

__all__ = ["BinStatus", "EpochTimes", "View"]


@dataclass(frozen=True, slots=True)
class EpochTimes:
    """The last epoch's times in milliseconds: whole epoch, Spark job, longest pull of any worker."""

    epoch_ms: float = 0.0
    job_ms: float = 0.0
    pull_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class BinStatus:
    """What was known of the bins when an epoch began: int32 location, int64 records in queue and bytes of state."""

    location: NDArray[np.int32]
    queued: NDArray[np.int64]
    size: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class View:
    """Everything a mechanism may know when it plans epoch `epoch`; arrays have one entry per bin, shape (B,).

    Attributes:
        epoch: the epoch to plan.
        started: the epoch in which the migration under way was first planned.
        stopped: the last epoch before which the query was stopped for this migration, -1 if it was not.
        workers: number of workers that exist in this epoch or in the goal, whichever is more; ids are 0..workers-1.
        routing: int32, worker that received the bin's records in epoch-1.
        location: int32, worker that held the bin's state at the end of epoch-1.
        goal: int32, the worker that is to own the bin.
        age: int32, epochs since the bin's location last changed (a large number if it never did).
        rate: float64, records per epoch, mean over the last epochs.
        queued: int64, records in the bin's queue.
        size: int64, bytes of the bin's state.
        replicas: (bin, worker) -> the epoch whose end the worker's replica of the bin shows.
        last: times of the last epoch.
    """

    epoch: int
    started: int
    workers: int
    routing: NDArray[np.int32]
    location: NDArray[np.int32]
    goal: NDArray[np.int32]
    age: NDArray[np.int32]
    rate: NDArray[np.float64]
    queued: NDArray[np.int64]
    size: NDArray[np.int64]
    replicas: Mapping[tuple[int, int], int] = field(default_factory=dict)
    last: EpochTimes = field(default_factory=EpochTimes)
    stopped: int = -1

    @property
    def bins(self) -> int:
        """Number of bins."""
        return len(self.routing)

    @property
    def misplaced(self) -> NDArray[np.intp]:
        """Bins whose state is not at its goal, ascending."""
        return np.flatnonzero(self.location != self.goal)

    @classmethod
    def make(
        cls,
        routing: NDArray[np.int32],
        goal: NDArray[np.int32],
        *,
        epoch: int = 1,
        size: int = 4096,
        started: int = 0,
        stopped: int = -1,
    ) -> "View":
        """Builds the view of a quiet query, state where it is routed, every bin of `size` bytes (simulation, tests)."""
        bins = len(routing)
        return cls(
            epoch=epoch,
            started=started,
            workers=int(max(routing.max(), goal.max())) + 1,
            routing=routing.astype(np.int32),
            location=routing.astype(np.int32),
            goal=goal.astype(np.int32),
            age=np.full(bins, 1 << 30, np.int32),
            rate=np.zeros(bins),
            queued=np.zeros(bins, np.int64),
            size=np.full(bins, size, np.int64),
            stopped=stopped,
        )
