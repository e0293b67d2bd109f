"""The input of both queries, and what must come of it: the second one's is the first one's topic."""

import json
from collections import Counter
from types import SimpleNamespace
from typing import Any

from linked_operators import DISORDER, SIZE
from realtime.topic import Topic
from realtime.workload import Workload, _text

from chains.parameters import NAMES, StageParameters

_EPOCH_BITS = 31  # below them is a result's index
_FAR = 1_000_000  # the time of the last record of each partition
_STEP = 0.5  # how often the time goes on by 1 with a record


class Counted(Workload):
    """Records whose times go on, those of a partition out of order within the disorder."""

    text = frozenset[str]()

    def _timed_rows(self) -> list[tuple[int, int, dict[str, Any]]]:
        now, found = 1_000, []
        for _ in range(self._p.records):
            now += self._random.random() < _STEP
            at, name = now - self._random.randrange(DISORDER), self._random.randrange(NAMES)
            found.append((self._random.randrange(self._p.partitions), name, {"at": at}))
        return found + [(partition, 0, {"at": _FAR}) for partition in range(self._p.partitions)]

    def counts(self) -> Counter[tuple[int, int]]:
        """Returns the records by end of window and name."""
        rows = ((name, columns["at"]) for log in self.log for name, _, columns in log if columns["at"] < _FAR)
        return Counter((at - at % SIZE + SIZE, name) for name, at in rows)

    def answers(self) -> list[str]:
        """Returns the results, in any order, as text."""
        return sorted(_text({"end": end, "name": name, "n": n}) for (end, name), n in self.counts().items())


class Chained(Workload):
    """The results of the first query as they lie in its topic, repeats among them.

    Attributes:
        senders: by partition, producer and number of each record; which of them are repeats.
    """

    text = frozenset[str]()

    def __init__(self, p: StageParameters, topic: Topic, first: Counted):
        self._topic, self._first, self._taken, self._seen = topic, first, 0, set[tuple[int, int, int]]()
        super().__init__(p)
        self.senders = SimpleNamespace(numbers=[[] for _ in range(p.partitions)], repeats=set())  # type: ignore[assignment]

    def _timed_rows(self) -> list[tuple[int, int, dict[str, Any]]]:
        return []

    @property
    def left(self) -> int:
        """Number of results that are sent and not to be seen yet."""
        return len(self._topic.rows) - self._taken

    @left.setter
    def left(self, number: int) -> None:
        """The topic says what is left."""

    def partition_of(self, key: bytes) -> int:
        """Returns the partition of the topic that has the results of a key."""
        return int.from_bytes(key, "big") % self._p.partitions

    def ends(self) -> dict[int, int]:
        """Returns by partition how far the topic goes, as the broker knows."""
        found = Counter(self.partition_of(key) for *_, key, _ in self._topic.rows)
        return {partition: found[partition] for partition in range(self._p.partitions)}

    def produce(self, number: int) -> None:
        """Lets the next results be seen."""
        for worker, epoch, index, _, key, value in self._topic.rows[self._taken : self._taken + number]:
            self._taken += 1
            partition, row = self.partition_of(key), json.loads(value)
            if (worker, epoch, index) in self._seen:
                self.senders.repeats.add((partition, len(self.log[partition])))
            self._seen.add((worker, epoch, index))
            producer = -1 - worker * self._p.partitions - partition
            self.senders.numbers[partition].append((producer, epoch << _EPOCH_BITS | index))
            self._add(partition, (row["end"], self.bin_of(row["end"]), row), {partition})

    def answers(self) -> list[str]:
        """Returns the results, in any order, as text."""
        names: dict[int, list[tuple[int, int]]] = {}
        for (end, name), n in self._first.counts().items():
            names.setdefault(end, []).append((n, name))
        best = {end: max(n for n, _ in found) for end, found in names.items()}
        return sorted(
            _text({"end": end, "n": best[end], "names": sorted(name for n, name in found if n == best[end])})
            for end, found in names.items()
        )
