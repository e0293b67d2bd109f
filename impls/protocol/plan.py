"""What a mechanism decides for one epoch, and what the runtime writes down of it.

That is also which moved bins their old owners delete: at most a budget, and none where bins are pulled.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from impls.protocol.arrays import array_of, text_of
from impls.protocol.eventtime import EpochClock, Partial
from impls.protocol.versions import Versions

__all__ = ["DROP_ENTRIES", "Drop", "EpochPlan", "Pull", "Stop", "WrittenPlan", "drops_within_budget"]

Stop = Literal["query", "application"]
DROP_ENTRIES = 16_384  # per worker and epoch: the store deletes one by one, 250,000 of hash state in 0.6 s


@dataclass(frozen=True, slots=True, order=True)
class Pull:
    """One bin that its new owner `target` fetches from its old owner `source`."""

    bin: int
    source: int
    target: int


@dataclass(frozen=True)  # without slots, as EpochOrder
class EpochPlan:
    """One epoch's decisions of a mechanism.

    Attributes:
        routing: int32, shape (B,): worker that receives the bin's records in this epoch.
        pulls: bins to fetch, in priority order.
        budget_bytes: most bytes each worker pulls in this epoch (at least one bin is always pulled); None for no limit.
        background_bytes: on demand, most of the budget for bins that nothing needs yet; None for all that is left.
        on_demand: pull first what this epoch's records and queues need; False: pull everything before any record.
        hold: bins whose records are only queued in this epoch.
        replicas: (bin, worker) pairs whose replica is brought up to the last epoch.
        shadows: (bin, worker) pairs: the worker processes the bin too, its results are not emitted.
        stop: end the query (or the whole application) before this epoch and start it; the epoch is then planned again.
        from_replica: pulls take the new owner's replica of the bin and only what has changed since.
        from_checkpoint: pulls read the bins from the checkpoint folder, not from the old owners' environments.
    """

    routing: NDArray[np.int32]
    pulls: tuple[Pull, ...] = ()
    budget_bytes: int | None = None
    on_demand: bool = False
    hold: tuple[int, ...] = ()
    replicas: tuple[tuple[int, int], ...] = ()
    shadows: tuple[tuple[int, int], ...] = ()
    stop: Stop | None = None
    from_checkpoint: bool = False
    from_replica: bool = False
    background_bytes: int | None = None


@dataclass(frozen=True)
class WrittenPlan:
    """A validated plan with what the runtime derives, as the plan log has it: a re-run of the epoch follows it.

    Attributes:
        epoch: the epoch the plan is for.
        generation: run of the driver that wrote it; grows with every start.
        workers: partitions of the epoch's job: 1 + the highest worker that owns, queues, replicates or drops.
        plan: the mechanism's decisions.
        drops: (bin, worker) pairs whose state the old owner deletes in this epoch; see `drops_within_budget`.
        migrating: a migration is under way in this epoch.
        watermark: event time below which no more records are expected; None without event time, or before there is one.
        merged: partials that are complete, to be delivered in this epoch.
        versions: the version of the pipeline that each bin runs under; None as long as there is only one.
        clock: the epoch's processing time and more, None where the operator asks for none.
    """

    epoch: int
    generation: int
    workers: int
    plan: EpochPlan
    drops: tuple[tuple[int, int], ...] = ()
    migrating: bool = False
    watermark: int | None = None
    merged: tuple[Partial, ...] = ()
    versions: Versions | None = None
    clock: EpochClock | None = None

    def to_json(self) -> dict[str, Any]:
        """Returns a JSON-ready dictionary; the routing is base64 of little-endian uint16."""
        own = {name: value for name, value in vars(self).items() if name not in {"plan", "versions", "clock"}}
        own |= {"versions": self.versions.to_json()} if self.versions is not None else {}
        own |= {"clock": self.clock.to_json()} if self.clock is not None else {}
        own["merged"] = [partial.to_json() for partial in self.merged]
        if self.watermark is None and not self.merged:
            del own["watermark"], own["merged"]
        routing = text_of(self.plan.routing, "<u2")
        pulls = [[pull.bin, pull.source, pull.target] for pull in self.plan.pulls]
        return {**own, **vars(self.plan), "routing": routing, "pulls": pulls}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "WrittenPlan":
        """Reads what `to_json` wrote."""
        decided = {field.name: data[field.name] for field in fields(EpochPlan) if field.name in data}
        decided |= {name: tuple(map(tuple, data[name])) for name in ("replicas", "shadows")}
        decided["routing"] = array_of(data["routing"], "<u2").astype(np.int32)
        decided |= {"pulls": tuple(Pull(*pull) for pull in data["pulls"]), "hold": tuple(data["hold"])}
        own = {field.name: data[field.name] for field in fields(cls) if field.name in data}
        own["drops"] = tuple(map(tuple, data["drops"]))
        own["merged"] = tuple(map(Partial.from_json, data.get("merged", ())))
        own["versions"] = Versions.from_json(data["versions"]) if "versions" in data else None
        own["clock"] = EpochClock.from_json(data["clock"]) if "clock" in data else None
        return cls(plan=EpochPlan(**decided), **own)


@dataclass(frozen=True, slots=True)
class Drop:
    """The old copy of a bin at the worker from which it was pulled; `entries` as the store counts them."""

    bin: int
    worker: int
    entries: int

    @property
    def place(self) -> tuple[int, int]:
        """(bin, worker), as a written plan names it."""
        return self.bin, self.worker


def drops_within_budget(pending: Sequence[Drop], pulls: Iterable[Pull], budget: int) -> list[Drop]:
    """Returns the drops of an epoch: for each worker those, in order, that fit `budget` entries, at least one.

    An epoch with pulls drops nothing else: its records would wait for both. But a bin that a worker may pull back in
    this epoch is dropped even beyond the budget, because a later drop would also delete the new state.
    """
    back = {(pull.bin, pull.target) for pull in pulls}
    if back:
        return [drop for drop in pending if drop.place in back]
    left: dict[int, int] = {}
    chosen = []
    for drop in pending:
        room = left.get(drop.worker)
        if room is None or drop.entries <= room:
            chosen.append(drop)
            left[drop.worker] = max(0, (budget if room is None else room) - drop.entries)
    return chosen
