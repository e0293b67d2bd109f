"""What one seed decides of a chain: its queries, which of them reads which, and what goes wrong with any."""

from dataclasses import dataclass, replace
from random import Random
from typing import Any

from linked_operators import DISORDER, Counts, Highest, Spread
from realtime import parameters as real_time

from chains import clocked
from impls import catalog
from impls.operators import Operator
from impls.operators.timed import clock_of
from impls.placement import initial
from impls.protocol.controller import Controller
from impls.protocol.eventtime import EventTime

NAMES = 12  # keys of a query that counts
SHAPES = {
    "two": (("counts", ()), ("highest", (0,))),
    "three": (("counts", ()), ("highest", (0,)), ("spread", (1,))),
    "join": (("counts", ()), ("counts", ()), ("highest", (0, 1))),
    "diamond": (("counts", ()), ("highest", (0,)), ("spread", (0, 1))),
    "windows": (("windows", ()), ("highest", (0,))),
    "windows-twice": (("windows", ()), ("wide", (0,))),
    "processor": (("closed", ()), ("wide", (0,))),
    "each": (("each", ()), ("wide", (0,))),
}
"""By name, what each query of a chain runs, and the places of those that it reads."""
_OPERATORS = {"highest": Highest, "spread": Spread}
UNITS = {"windows": (250, 3), "closed": (500, 4), "each": (1_000, 0)}
"""By what a query of times in µs runs: how many µs a unit is, and how many units a window, 0 for none. Windows of
`closed` end with whole ms, as timers do."""
CLOCKED_DISORDER = 20  # units that records of a partition are out of order
_DELAYS_MS = (0, 1, 2, 5, 10)


@dataclass(frozen=True)
class StageParameters(real_time.Parameters):
    """Those of one query of a chain.

    Attributes:
        runs: counts (records by window), highest (count of each window) or spread (how often each number came); or
            one of `chains.clocked`: windows, wide (windows of counts of windows), closed (a processor that counts) or
            each (a result for each record).
        inputs: the places of the queries that it reads; none for one that reads the chain's input.
        delay_ms: disorder that a clock allows; of_all: it goes by the highest time of all partitions.
    """

    runs: str = "counts"
    inputs: tuple[int, ...] = ()
    delay_ms: int = 0
    of_all: bool = False

    @property
    def timed(self) -> bool:
        """All have event time."""
        return True

    @property
    def exact(self) -> bool:
        """Whether no record can be late."""
        unit, _ = UNITS.get(self.runs, (0, 0))
        return self.delay_ms * 1000 >= CLOCKED_DISORDER * unit and not self.of_all

    def _event_time(self, column: str) -> EventTime:
        partitions = 0 if self.of_all or self.inputs else self.partitions
        return EventTime(column, self.delay_ms * 1000, partitions, of_all=self.of_all, clock=True, as_spark=True)

    def make_operator(self) -> Operator:
        """Returns the stage's operator."""
        if self.runs == "windows":
            return clocked.windows(self._event_time(clocked.EVENT), "name", "n")
        if self.runs == "wide":
            return clocked.windows(self._event_time(clocked.EVENT), "n", "times")
        if self.runs == "each":
            unit, _ = UNITS[self.runs]
            return clocked.Each((CLOCKED_DISORDER - 1) * unit, self.partitions)  # records come at the watermark
        if self.runs == "closed":
            return clocked.processor(self._event_time(clocked.EVENT_TIME))
        if self.inputs:
            return _OPERATORS[self.runs]("")
        counts = Counts("")
        counts.event_time = EventTime("at", disorder=DISORDER, partitions=self.partitions)  # type: ignore[misc]
        return counts

    def make_controller(self) -> Controller:
        """Returns a controller at the query's begin."""
        clock = clock_of(self.make_operator(), self.bins, linked=bool(self.inputs))
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
    """Returns what a seed decides; `fixed` replaces what is drawn for all queries, and `shape` that of the chain."""
    random = Random(seed + 41)
    shape = SHAPES[fixed.pop("shape", None) or random.choice(("two", *SHAPES))]
    plain = {"changes": (), "refused": 0.0, "linked": 0.0, "autoscale": "", "rows": 1, "anew": 0.0, "operator": "hash"}
    shared = {"durability": random.choice(("none", "process")), "epochs": random.randint(10, 16), **plain}
    stages = []
    for place, (runs, inputs) in enumerate(shape):
        own = seed + 100_000 * place
        found = real_time.draw(own, **{**shared, **fixed})
        if not _moves(found):
            moving = random.choice(("megaphone-batched", "megaphone-fluid", "meces"))
            found = real_time.draw(own, **{**shared, "mechanism": moving, **fixed})
        stage = StageParameters(**vars(found), runs=runs, inputs=inputs)
        reads = {"linked": 1.0, "partitions": random.randint(1, 3) * len(inputs)} if inputs else {"keys": NAMES}
        reads["come"] = random.choice((0.1, 0.03, 0.01))
        clock = {"delay_ms": random.choice(_DELAYS_MS), "of_all": random.random() < 0.5} if runs in UNITS else {}
        stages.append(replace(stage, **reads, **clock))
    return ChainParameters(tuple(stages), away=random.choice((0.0, 0.0, 0.3)))


def _moves(found: real_time.Parameters) -> bool:
    """Returns whether the query's mechanism moves bins while it runs, with the durability that there is."""
    if found.mechanism in catalog.baselines():
        return False
    return found.durability != "none" or not found.make_mechanism().replicates
