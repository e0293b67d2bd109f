"""What one epoch asks of every worker, and what a worker answers."""

from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from impls.durability.files import Files
from impls.durability.restore import Source
from impls.operators.base import Operator
from impls.protocol.jsontext import from_text, to_text
from impls.protocol.plan import WrittenPlan
from impls.protocol.shared import Shared
from impls.worker.output import Output

__all__ = ["PARTS", "PHASES", "Report", "StepOrder", "counts"]

PHASES = ("open", "recover", "drop", "pull", "apply", "commit", "log", "send", "snapshot", "replicate")
PARTS = ("read",)  # inside other phases: a shared store's answers


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


@dataclass(slots=True)
class Report:
    """What a worker did in an epoch; times in milliseconds, sizes in bytes.

    Attributes:
        worker: the worker's number; `attempt` counts the task's attempts from 0, `repeated` says the state was
            already committed by an earlier attempt.
        records: records applied; `results`: results sent.
        rates: (bins, records that arrived) per bin seen.
        queued: (bins, records) of all non-empty queues after the epoch; `queue_bytes` their stored size.
        sizes: (bins, bytes) of bins whose state size changed.
        pulled: bins pulled; `pulled_entries`: what the store has of each, empty if that is shared; `pulled_bytes`:
            their size; `restored`: how many of them came from the checkpoint.
        recovered: why the worker's environment was rebuilt in this epoch, "" if it was not.
        replicas: [bin, epoch it shows now] of the replicas brought up; `replicated_bytes`: what was read for them;
            `shadowed`: records processed a second time.
        changed: bins whose state, queue or location changed; `log_bytes`: size of the changelog frame.
        snapshot: bins snapshotted; `snapshot_bytes`: size of their file.
        lmdb_bytes, outbox_bytes: what the environment and the outbox occupy.
        cache_hits, cache_misses: entries of a shared store that were in this process's cache, and that were not.
        times, partials, waits: as in an observation, of operators with event time; `late`: records below the watermark;
            `fired`: timers.
        done_us: wall clock when the last result was acknowledged; `negative`: records with a latency below zero.
        ms: time by phase.
    """

    worker: int
    attempt: int = 0
    repeated: bool = False
    records: int = 0
    results: int = 0
    rates: tuple[list[int], list[int]] = field(default_factory=lambda: ([], []))
    queued: tuple[list[int], list[int]] = field(default_factory=lambda: ([], []))
    queue_bytes: int = 0
    sizes: tuple[list[int], list[int]] = field(default_factory=lambda: ([], []))
    pulled: list[int] = field(default_factory=list)
    pulled_entries: list[int] = field(default_factory=list)
    pulled_bytes: int = 0
    restored: int = 0
    replicas: list[list[int]] = field(default_factory=list)
    replicated_bytes: int = 0
    shadowed: int = 0
    recovered: str = ""
    changed: list[int] = field(default_factory=list)
    log_bytes: int = 0
    snapshot: list[int] = field(default_factory=list)
    snapshot_bytes: int = 0
    lmdb_bytes: int = 0
    outbox_bytes: int = 0
    cache_hits: int = 0
    cache_misses: int = 0
    done_us: int = 0
    negative: int = 0
    times: list[list[int]] = field(default_factory=list)
    partials: list[list[Any]] = field(default_factory=list)
    waits: list[int] = field(default_factory=list)
    late: int = 0
    fired: int = 0
    pid: int = 0
    ms: dict[str, float] = field(default_factory=dict)

    def to_json(self) -> bytes:
        """Returns the report as one line of JSON, without what is 0 or empty."""
        return to_text({"worker": self.worker, **{name: value for name in _REPORTED if (value := getattr(self, name))}})

    @classmethod
    def from_json(cls, text: str | bytes) -> "Report":
        """Reads what `to_json` wrote."""
        return cls(**from_text(text))


_REPORTED = tuple(field.name for field in fields(Report))


def counts(bins: NDArray[np.int32]) -> tuple[list[int], list[int]]:
    """Returns (distinct bins, records of each)."""
    number = np.bincount(bins)
    ids = np.flatnonzero(number)
    return ids.tolist(), number[ids].tolist()
