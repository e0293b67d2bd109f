"""What one epoch asks of every worker, and what a worker answers."""

import json
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from impls.operators.base import Operator
from impls.runtime.outbox import Output
from impls.runtime.plan import WrittenPlan

__all__ = ["PHASES", "Report", "StepOrder", "counts"]

PHASES = ("open", "drop", "pull", "apply", "commit", "send")


@dataclass(frozen=True, slots=True)
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
        awaiting: bins whose state is not yet where the epoch routes them, pulls of this epoch included.
        moving: bins that the migration under way moves (their latency is kept apart).
    """

    query: str
    written: WrittenPlan
    bins: int
    operator: Operator
    output: Output
    state_dir: str
    first: bool = False
    fresh: tuple[int, ...] = ()
    awaiting: tuple[int, ...] = ()
    moving: tuple[int, ...] = ()


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
        pulled: bins pulled; `pulled_bytes` their size.
        lmdb_bytes, outbox_bytes: what the environment and the outbox occupy.
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
    pulled_bytes: int = 0
    lmdb_bytes: int = 0
    outbox_bytes: int = 0
    done_us: int = 0
    negative: int = 0
    pid: int = 0
    ms: dict[str, float] = field(default_factory=dict)

    def to_json(self) -> str:
        """Returns the report as one line of JSON."""
        return json.dumps({f.name: getattr(self, f.name) for f in fields(self)}, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes) -> "Report":
        """Reads what `to_json` wrote."""
        data: dict[str, Any] = json.loads(text)
        return cls(**data)


def counts(bins: NDArray[np.int32]) -> tuple[list[int], list[int]]:
    """Returns (distinct bins, records of each)."""
    ids, number = np.unique(bins, return_counts=True)
    return ids.tolist(), number.tolist()
