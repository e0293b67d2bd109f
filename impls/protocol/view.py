"""What a mechanism sees at the start of an epoch, and what the reports of the last one have said. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from impls.protocol.versions import Failure


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


Sparse = tuple[NDArray[np.int32], NDArray[np.int64]]


def _empty() -> Sparse:
    return np.empty(0, np.int32), np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Observation:
    """One epoch as observed; sparse fields are (bins, values) of equal shape (n,).

    Attributes:
        epoch: the epoch.
        pulled: bins that are now at the worker the plan routes them to; `entries`: what the store has of each, in their
            order, empty where dropping them at the old owner costs nothing.
        records: records that arrived per bin.
        queued: records in queue after the epoch; bins not listed have none.
        sizes: bytes of state, for bins whose size changed.
        epoch_ms, job_ms, pull_ms: times of the epoch, its Spark job and the longest pull of a worker.
        replicas: (bin, worker, epoch that the worker's replica of the bin shows now).
        times: (partition, highest event time that arrived), of operators with event time; as the one that follows.
        waits: bins whose timers did not run as far as those of others, because their state was not where they are
            routed, or was held, or their worker was told of a lower watermark.
        until: up to where the timers of the others ran, None for the watermark of the plan.
        homes: on a cluster (worker, host that it ran on).
        turned: (bin, shape that its state has now), see `impls.protocol.versions`; as the two that follow.
        tried: records that a version was tried on.
        failed: what went wrong with versions.
        stopped: nothing but that the query was ended before this epoch because the plan asked for it.
    """

    epoch: int
    pulled: tuple[int, ...] = ()
    records: Sparse = field(default_factory=_empty)
    queued: Sparse = field(default_factory=_empty)
    sizes: Sparse = field(default_factory=_empty)
    epoch_ms: float = 0.0
    job_ms: float = 0.0
    pull_ms: float = 0.0
    replicas: tuple[tuple[int, int, int], ...] = ()
    stopped: bool = False
    times: tuple[tuple[int, int], ...] = ()
    waits: tuple[int, ...] = ()
    until: int | None = None
    entries: tuple[int, ...] = ()
    homes: tuple[tuple[int, str], ...] = ()
    turned: tuple[tuple[int, int], ...] = ()
    tried: int = 0
    failed: tuple[Failure, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Returns a JSON-ready dictionary."""
        sparse = {name: [part.tolist() for part in getattr(self, name)] for name in ("records", "queued", "sizes")}
        times = {name: round(getattr(self, name), 3) for name in ("epoch_ms", "job_ms", "pull_ms")}
        replicas = [list(replica) for replica in self.replicas]
        rest = {"replicas": replicas, "stopped": self.stopped}
        more: dict[str, Any] = {"times": [list(pair) for pair in self.times]} if self.times else {}
        more |= {"waits": list(self.waits)} if self.waits else {}
        more |= {"until": self.until} if self.until is not None else {}
        more |= {"entries": list(self.entries)} if self.entries else {}
        more |= {"homes": [list(pair) for pair in self.homes]} if self.homes else {}
        more |= {"turned": [list(pair) for pair in self.turned]} if self.turned else {}
        more |= {"tried": self.tried} if self.tried else {}
        more |= {"failed": [_failure_row(failure) for failure in self.failed]} if self.failed else {}
        return {"epoch": self.epoch, "pulled": list(self.pulled), **sparse, **times, **rest, **more}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Observation":
        """Reads what `to_json` wrote."""
        sparse = {
            name: (np.array(data[name][0], np.int32), np.array(data[name][1], np.int64))
            for name in ("records", "queued", "sizes")
        }
        rows = {name: tuple(map(tuple, data.get(name, ()))) for name in ("replicas", "times", "homes", "turned")}
        plain = {name: tuple(data.get(name, ())) for name in ("pulled", "waits", "entries")}
        failed = tuple(Failure(*pair) for pair in data.get("failed", ()))
        return cls(**{**data, **sparse, **rows, **plain, "failed": failed})


def _failure_row(failure: Failure) -> list[int | str]:
    row: list[int | str] = [failure.version, failure.text]
    return row if failure.bin is None else [*row, failure.bin]
