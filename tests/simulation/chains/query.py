"""The queries of a chain: all are in one process, so that the drivers die together and start together."""

from collections.abc import Mapping
from pathlib import Path
from random import Random

from realtime.query import Query
from realtime.troubles import Troubles

from chains.parameters import UNITS, ChainParameters, StageParameters
from chains.workloads import Chained, Clocked, Counted
from impls.autoscale.intervals import PartitionOffsets
from impls.driver.milestones import Milestones, follow, sending
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

    def read(self, since: Mapping[int, int]) -> dict[int, int]:
        """Returns by partition the offset behind what was read, as it is noted or applied since."""
        first, noted = self.load.places.first, self._needed
        known = noted | {part: at for part, at in since.items() if at > noted.get(part, -1)}
        return {partition: first(partition, known, at) for partition, at in enumerate(self._committed)}

    def consumed(self, epoch: int, since: Mapping[int, int] | None = None) -> PartitionOffsets:
        """Tells it of the results that are its input, see `impls.driver.arrivals.Consumed`."""
        del epoch
        return _named(self.read(since or {}))


class Chain:
    """The queries, and what their drivers tell each other.

    Attributes:
        queries: in their order.
        milestones: between drivers that run.
    """

    def __init__(self, p: ChainParameters, troubles: Troubles, folder: Path):
        self._stages, self._away, self._random = p.stages, p.away, Random(p.seed + 43)
        self._troubles = troubles
        self._starting, self.milestones = True, list[Milestones]()
        self.queries: list[StageQuery] = []
        for place, own in enumerate(p.stages):
            before = [self.queries[one] for one in own.inputs]
            plain = Clocked if own.runs in UNITS else Counted
            load = Chained(own, [(one.topic, one.load) for one in before]) if before else plain(own)
            self.queries.append(StageQuery(own, load, troubles, folder / str(place), self))
            load.topic = self.queries[-1].topic
        self._starting = False
        self._link()

    def started(self, query: StageQuery) -> None:
        """The driver of a query has started, and so those of the others: they are in one process."""
        if self._starting:
            return
        self._starting = True
        for other in self.queries:
            if other is not query:
                other._start()
        self._starting = False
        self._link()

    def _link(self) -> None:
        self.milestones = []
        for own, query in zip(self._stages, self.queries, strict=True):
            found = [self._told(own.inputs.index(one), self.queries[one], query) for one in own.inputs]
            if found:
                follow(found, query.driver, query.consumed, lambda _, partition: [partition])
            self.milestones += found

    def _told(self, topic: int, first: StageQuery, then: StageQuery) -> Milestones:
        """Lets a query tell another one, of which it is an input, how far it has come."""
        assert isinstance(then.load, Chained), "a query that reads another one"

        def ends(load: Chained = then.load) -> PartitionOffsets:
            if self._troubles.on and self._random.random() < self._away:
                raise StateError("The broker is away.")
            return _named(load.ends(topic))

        return sending(first.driver, ends)

    @property
    def caught_up(self) -> bool:
        """Whether each query knows all that those before it have told."""
        read = [query.load.left for query in self.queries if isinstance(query.load, Chained)]
        return not any(one.waiting is not None for one in self.milestones) and not any(read)


def _named(offsets: dict[int, int]) -> PartitionOffsets:
    return {(_TOPIC, partition): at for partition, at in offsets.items()}
