"""What one seed decides of a chain: both queries, and what goes wrong with either."""

from dataclasses import dataclass, replace
from random import Random
from typing import Any

from linked_operators import DISORDER, Counts, Highest
from realtime import parameters as real_time

from impls import catalog
from impls.operators import Operator
from impls.operators.timed import clock_of
from impls.placement import initial
from impls.protocol.controller import Controller
from impls.protocol.eventtime import EventTime

NAMES = 12  # keys of the first query


@dataclass(frozen=True)
class StageParameters(real_time.Parameters):
    """Those of one query of a chain: the first counts records by window, the other finds the highest count of each."""

    stage: int = 0

    @property
    def timed(self) -> bool:
        """Both have event time."""
        return True

    def make_operator(self) -> Operator:
        """Returns the stage's operator."""
        if self.stage:
            return Highest("")
        counts = Counts("")
        counts.event_time = EventTime("at", disorder=DISORDER, partitions=self.partitions)  # type: ignore[misc]
        return counts

    def make_controller(self) -> Controller:
        """Returns a controller at the query's begin."""
        clock = clock_of(self.make_operator(), self.bins, linked=self.stage > 0)
        first = initial(self.bins, self.workers)
        return Controller(first, self.make_mechanism(), clock, drop_entries=real_time.epochs.DROP_ENTRIES)


@dataclass(frozen=True)
class ChainParameters:
    """All that a run depends on.

    Attributes:
        stages: the queries', in their order; what goes wrong is in those of the first.
        away: how often the broker does not say how far the results go.
    """

    stages: tuple[StageParameters, ...]
    away: float

    @property
    def seed(self) -> int:
        """The seed."""
        return self.stages[0].seed

    @property
    def faults(self) -> tuple[()]:
        """None at a place that is drawn beforehand."""
        return ()

    def __str__(self) -> str:
        return " | ".join([*map(str, self.stages), f"away {self.away}"])


def draw(seed: int, **fixed: Any) -> ChainParameters:
    """Returns what a seed decides; `fixed` replaces what is drawn for both queries."""
    random = Random(seed + 41)
    plain = {"changes": (), "refused": 0.0, "linked": 0.0, "autoscale": "", "rows": 1, "anew": 0.0, "operator": "hash"}
    shared = {"durability": random.choice(("none", "process")), "epochs": random.randint(10, 16), **plain}
    stages = []
    for stage in range(2):
        found = real_time.draw(seed + 100_000 * stage, **{**shared, **fixed})
        if not _moves(found):
            moving = random.choice(("megaphone-batched", "megaphone-fluid", "meces"))
            found = real_time.draw(seed + 100_000 * stage, **{**shared, "mechanism": moving, **fixed})
        stages.append(StageParameters(**{**vars(found), "seed": seed, "stage": stage}))
    first, second = stages
    return ChainParameters(
        (replace(first, keys=NAMES), replace(second, linked=1.0, partitions=random.randint(1, 3))),
        away=random.choice((0.0, 0.0, 0.3)),
    )


def _moves(found: real_time.Parameters) -> bool:
    """Returns whether the query's mechanism moves bins while it runs, with the durability that there is."""
    if found.mechanism in catalog.baselines():
        return False
    return found.durability != "none" or not found.make_mechanism().replicates
