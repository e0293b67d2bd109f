"""What one seed decides: the query, its input, its commands, and how often what goes wrong."""

from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from chaos import parameters as epochs
from chaos.recipes import Chain
from chaos.requests import draw_changes

from impls.operators import DenseCount, HashCount, Operator
from impls.operators.nexmark import make
from impls.operators.timed import clock_of
from impls.placement import initial
from impls.protocol.controller import Controller

TIMED = ("q3", "q4", "q5", "q6", "q7", "q8")
_OPERATORS = ("hash", "hash", "dense", "preloaded", "chain", "chain", "q4", "q5", "q5", "q6", "q7", "q7", "q8", "q3")
_DRAWN = ("task", "deep", "send", "tear", "full", "router", "driver", "journal", "job", "again", "lose", "damage")
KINDS = (*_DRAWN, "flip")
"""What goes wrong: a worker's task dies at a point, at a rare one, while it sends, while it writes its changelog; the
disk is full; a router dies; the driver dies at a point, behind an entry of a journal, during an epoch; Spark dies
behind the last task of a batch and does not know that the batch has ended; an environment is lost with its task, or
turns out to be damaged; bits flip in one, open or not, of every fourth query."""
_OF_NONE = {"task", "send", "router", "driver", "journal", "job", "again"}  # what durability "none" survives


@dataclass(frozen=True)
class Parameters(epochs.Parameters):
    """All that a run depends on; `records` is the number of all of them, and `slots` that of the first session.

    Attributes:
        partitions: input partitions, each with a router.
        rates: by kind, how probable it is at each point where it can happen.
        most: number of things that go wrong.
        batch_end: probability of each step of a session to be that at which Spark ends the batch.
        linger: steps that other tasks go on after one has died.
        commit: records of a commit at most.
        rows: rows of a record at most.
        anew: probability of each partition's topic to be made anew before a driver starts.
        come: probability of each step that records come.
    """

    partitions: int = 2
    rates: dict[str, float] = field(default_factory=dict)
    most: int = 0
    batch_end: float = 0.0
    linger: int = 0
    commit: int = 32_768
    rows: int = 1
    anew: float = 0.0
    come: float = 0.1

    @property
    def timed(self) -> bool:
        """Whether the operator has event time."""
        return self.operator in TIMED

    def make_operator(self) -> Operator:
        """Returns the query's operator."""
        if self.timed:
            return make(self.operator, partitions=self.partitions)
        counts = {"dense": DenseCount(self.keys), "hash": HashCount(), "preloaded": HashCount(self.keys)}
        return counts.get(self.operator) or Chain()

    def make_controller(self) -> Controller:
        """Returns a controller at the query's begin."""
        clock = clock_of(self.make_operator(), self.bins)
        first = initial(self.bins, self.workers)
        return Controller(first, self.make_mechanism(), clock, drop_entries=epochs.DROP_ENTRIES)


def draw(seed: int, **fixed: Any) -> Parameters:
    """Returns what a seed decides; `fixed` replaces what is drawn."""
    random = Random(seed + 7)
    names = {name for name in fixed if name in epochs.Parameters.__dataclass_fields__ and name != "operator"}
    base = epochs.draw(seed, faults=0, **{name: fixed[name] for name in names})
    kinds = _OF_NONE if base.durability == "none" else KINDS
    rates = {kind: random.choice((0.0, 0.3, 1.0)) * _RATES[kind] for kind in _DRAWN if kind in kinds}
    if "flip" in kinds:
        rates["flip"] = Random(seed + 19).choice((0.0, 0.0, 0.0, 1.0)) * _RATES["flip"]
    commands = (
        () if base.mechanism == "none" else tuple((2 + 2 * at // 3, kind, value) for at, kind, value in base.commands)
    )
    drawn = Parameters(
        **{**vars(base), "operator": random.choice(_OPERATORS), "epochs": random.randint(12, 20),
           "records": random.choice((60, 150, 300)), "slots": random.randint(base.workers, 6), "commands": commands},
        partitions=random.randint(1, 3), rates=rates, most=random.choice((0, 2, 5, 9)),
        batch_end=random.choice((0.0, 0.001, 0.004, 0.02)), linger=random.choice((0, 0, 10, 60)),
        commit=random.choice((1, 5, 32_768, 32_768)), rows=random.choice((1, 1, 3, 9)), anew=random.choice((0.0, 0.5)),
    )  # fmt: skip
    drawn = replace(drawn, changes=draw_changes(seed, 12))
    if drawn.changes and seed % 2:  # the operator whose state can take another shape
        drawn = replace(drawn, operator="chain")
    drawn = replace(drawn, **fixed)
    return replace(drawn, linked=0.0) if drawn.rows > 1 else drawn  # a result is one row


_RATES = {
    "task": 0.02, "deep": 0.1, "send": 0.005, "tear": 0.01, "full": 0.01, "router": 0.01, "driver": 0.05,
    "journal": 0.03, "job": 0.001, "again": 0.5, "lose": 0.5, "damage": 0.02, "flip": 0.01,
}  # fmt: skip
