"""The two queries of a chain: both are in one process, so that the drivers die together and start together."""

from pathlib import Path
from random import Random

from realtime.query import Query
from realtime.troubles import Troubles

from chains.parameters import ChainParameters, StageParameters
from chains.workloads import Chained, Counted
from impls.autoscale.intervals import PartitionOffsets
from impls.driver.milestones import Milestones, adding, follow
from impls.errors import StateError

_TOPIC = "results"


class StageQuery(Query):
    """One query of a chain."""

    def __init__(self, p: StageParameters, load: Counted | Chained, troubles: Troubles, folder: Path, chain: "Chain"):
        self._chain = chain
        super().__init__(p, load, troubles, folder)

    def _start(self) -> None:
        super()._start()
        self._chain.started(self)

    def read(self) -> dict[int, int]:
        """Returns by partition the offset behind what was read, as it is noted."""
        first = self.load.places.first
        return {partition: first(partition, self._needed, at) for partition, at in enumerate(self._committed)}


class Chain:
    """Both queries, and what their drivers tell each other.

    Attributes:
        queries: in their order.
        milestones: of the drivers that run.
    """

    def __init__(self, p: ChainParameters, troubles: Troubles, folder: Path):
        self._away, self._random = p.away, Random(p.seed + 43)
        self._troubles = troubles
        self._starting, self.milestones = True, Milestones()
        (own, other), input_ = p.stages, Counted(p.stages[0])
        first = StageQuery(own, input_, troubles, folder / "0", self)
        self._results = Chained(other, first.topic, input_)
        self.queries = [first, StageQuery(other, self._results, troubles, folder / "1", self)]
        self._starting = False
        self._link()

    def started(self, query: StageQuery) -> None:
        """The driver of a query has started, and so that of the other one: they are in one process."""
        if self._starting:
            return
        self._starting = True
        next(other for other in self.queries if other is not query)._start()
        self._starting = False
        self._link()

    def _link(self) -> None:
        first, second = (query.driver for query in self.queries)
        self.milestones, clock = Milestones(), first.controller.clock
        assert clock is not None, "the first query has event time"
        first.listeners.append(adding(self.milestones, clock, self._ends))
        follow([self.milestones], second, lambda _: _named(self.queries[1].read()))

    def _ends(self) -> PartitionOffsets:
        if self._troubles.on and self._random.random() < self._away:
            raise StateError("The broker is away.")
        return _named(self._results.ends())

    @property
    def caught_up(self) -> bool:
        """Whether the second query knows all that the first one has told."""
        return not self.milestones.waits and not self._results.left


def _named(offsets: dict[int, int]) -> PartitionOffsets:
    return {(_TOPIC, partition): at for partition, at in offsets.items()}
