"""A query that is stopped runs one more epoch, behind which it has applied what it says it has read, and no more."""

from random import Random

from chaos.violation import require

from realtime.commits import Commits
from realtime.parameters import Parameters
from realtime.query import Query

_SHARE = 0.8  # of all queries


class Stops:
    """stop() ends a query, now and then, as its user does, and has it begin anew.

    Left out are queries of which nobody could tell: of records with several rows, of which some have been refused, and
    with records that wait for bins on their way.
    """

    def __init__(self, p: Parameters, query: Query, commits: Commits):
        self._query, self._commits, random = query, commits, Random(p.seed + 37)
        self._stops = random.random() < _SHARE and not query.load.places.several and not p.refused and not p.linked
        self.disturbed = random.random() < 0.5

    def stop(self) -> bool:
        """Runs the last epoch and requires that its records are those read; returns whether there was one."""
        if self._stops:
            self._query.last_epoch()
            if not self._query.driver.controller.queued.any():
                self._check()
        return self._stops

    def _check(self) -> None:
        load = self._query.load
        found = [load.places.find(place) for commit in self._commits.held for place, _, _ in commit.records]
        for partition, behind in enumerate(self._query.read_until):
            applied = {index for at, index in found if at == partition}
            wanted = {index for index in range(behind) if load.applies(partition, index)}
            require(
                applied == wanted, "last",
                f"a query that was stopped has read partition {partition} up to row {behind}: it has applied "
                f"{sorted(applied - wanted)} besides, and lacks {sorted(wanted - applied)}",
            )  # fmt: skip
