"""What the reports of an epoch say about locations, rates, queues and sizes."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from impls.protocol.eventtime import Partial
from impls.protocol.versions import Failure

__all__ = ["Observation", "Sparse"]

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
        times: (partition, highest event time that arrived), of operators with event time; as the two that follow.
        partials: what bins contributed to values over all bins.
        waits: bins whose timers did not run, because their state was not where they are routed, or was held.
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
    partials: tuple[Partial, ...] = ()
    waits: tuple[int, ...] = ()
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
        given: dict[str, Any] = {"times": [list(pair) for pair in self.times]} if self.times else {}
        given |= {"partials": [partial.to_json() for partial in self.partials]} if self.partials else {}
        given |= {"waits": list(self.waits)} if self.waits else {}
        given |= {"entries": list(self.entries)} if self.entries else {}
        given |= {"homes": [list(pair) for pair in self.homes]} if self.homes else {}
        given |= {"turned": [list(pair) for pair in self.turned]} if self.turned else {}
        given |= {"tried": self.tried} if self.tried else {}
        given |= {"failed": [[failure.version, failure.text] for failure in self.failed]} if self.failed else {}
        return {"epoch": self.epoch, "pulled": list(self.pulled), **sparse, **times, **rest, **given}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Observation":
        """Reads what `to_json` wrote."""
        sparse = {
            name: (np.array(data[name][0], np.int32), np.array(data[name][1], np.int64))
            for name in ("records", "queued", "sizes")
        }
        rows = {name: tuple(map(tuple, data.get(name, ()))) for name in ("replicas", "times", "homes", "turned")}
        plain = {name: tuple(data.get(name, ())) for name in ("pulled", "waits", "entries")}
        partials = tuple(map(Partial.from_json, data.get("partials", ())))
        failed = tuple(Failure(*pair) for pair in data.get("failed", ()))
        return cls(**{**data, **sparse, **rows, **plain, "partials": partials, "failed": failed})
