"""The input of the queries, and what must come of it: that of most is the topics of others."""

import json
from collections import Counter
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from linked_operators import DISORDER, SIZE
from realtime.topic import Topic
from realtime.workload import Workload, _text

from chains.parameters import NAMES, StageParameters

Row = dict[str, Any]
Number = tuple[int, int, int, int]  # topic, worker, epoch, index
_EPOCH_BITS = 31  # below them is a result's index
_FAR = 1_000_000  # the time of the last record of each partition
_STEP = 0.5  # how often the time goes on by 1 with a record


class StageWorkload(Workload):
    """The input of one query of a chain."""

    text = frozenset[str]()

    def results(self) -> list[Row]:
        """Returns the query's results, in any order."""
        raise NotImplementedError

    def answers(self) -> list[str]:
        """Returns them as text."""
        return sorted(map(_text, self.results()))


class Counted(StageWorkload):
    """Records whose times go on, those of a partition out of order within the disorder."""

    def _timed_rows(self) -> list[tuple[int, int, dict[str, Any]]]:
        now, found = 1_000, []
        for _ in range(self._p.records):
            now += self._random.random() < _STEP
            at, name = now - self._random.randrange(DISORDER), self._random.randrange(NAMES)
            found.append((self._random.randrange(self._p.partitions), name, {"at": at}))
        return found + [(partition, 0, {"at": _FAR}) for partition in range(self._p.partitions)]

    def results(self) -> list[Row]:
        """Returns the records by end of window and name."""
        rows = ((name, columns["at"]) for log in self.log for name, _, columns in log if columns["at"] < _FAR)
        counts = Counter((at - at % SIZE + SIZE, name) for name, at in rows)
        return [{"end": end, "name": name, "n": n} for (end, name), n in counts.items()]


def _highest(rows: list[Row]) -> list[Row]:
    """Returns the highest number of each window, and the names that have it."""
    found: dict[int, list[Row]] = {}
    for row in rows:
        found.setdefault(row["end"], []).append(row)
    best = {end: max(row["n"] for row in rows) for end, rows in found.items()}
    return [
        {"end": end, "n": best[end], "names": sorted(row["name"] for row in rows if row["n"] == best[end])}
        for end, rows in found.items()
    ]


def _spread(rows: list[Row]) -> list[Row]:
    """Returns how often each number came in each window of twice the length."""
    found = Counter((-(-row["end"] // (2 * SIZE)) * 2 * SIZE, row["n"]) for row in rows)
    return [{"end": end, "n": n, "times": times} for (end, n), times in found.items()]


_RESULTS = {"highest": (_highest, "end"), "spread": (_spread, "n")}  # what is computed, and by which column


class Chained(StageWorkload):
    """The results of other queries as they lie in their topics, repeats among them.

    The partitions of one topic lie behind those of another, as many of each.

    Attributes:
        senders: by partition, producer and number of each record; which of them are repeats.
    """

    def __init__(self, p: StageParameters, topics: Sequence[tuple[Topic, StageWorkload]]):
        self._topics, self._taken, self._seen = [topic for topic, _ in topics], [0] * len(topics), set[Number]()
        self._before = [load for _, load in topics]
        self._compute, self._key = _RESULTS[p.runs]
        self._each = p.partitions // len(topics)
        super().__init__(p)
        self.senders = SimpleNamespace(numbers=[[] for _ in range(p.partitions)], repeats=set())  # type: ignore[assignment]

    def _timed_rows(self) -> list[tuple[int, int, dict[str, Any]]]:
        return []

    @property
    def left(self) -> int:
        """Number of results that are sent and not to be seen yet."""
        return sum(len(topic.rows) for topic in self._topics) - sum(self._taken)

    @left.setter
    def left(self, number: int) -> None:
        """The topics say what is left."""

    def _partition_of(self, topic: int, key: bytes) -> int:
        """Returns the partition that has the results of a key."""
        return topic * self._each + int.from_bytes(key, "big") % self._each

    def ends(self, topic: int) -> dict[int, int]:
        """Returns by partition how far a topic goes, as the broker knows."""
        found = Counter(self._partition_of(topic, key) for *_, key, _ in self._topics[topic].rows)
        return {partition: found[partition] for partition in range(topic * self._each, (topic + 1) * self._each)}

    def produce(self, number: int) -> None:
        """Lets the next results be seen, of any of the topics."""
        for _ in range(min(number, self.left)):
            new = [topic for topic, taken in enumerate(self._taken) if taken < len(self._topics[topic].rows)]
            self._take(self._random.choice(new))

    def _take(self, topic: int) -> None:
        worker, epoch, index, _, key, value = self._topics[topic].rows[self._taken[topic]]
        self._taken[topic] += 1
        partition, row = self._partition_of(topic, key), json.loads(value)
        if (topic, worker, epoch, index) in self._seen:
            self.senders.repeats.add((partition, len(self.log[partition])))
        self._seen.add((topic, worker, epoch, index))
        producer = -1 - worker * self._p.partitions - partition
        self.senders.numbers[partition].append((producer, epoch << _EPOCH_BITS | index))
        self._add(partition, (row[self._key], self.bin_of(row[self._key]), row), {partition})

    def results(self) -> list[Row]:
        """Returns what is computed of the results of the queries before."""
        return self._compute([row for load in self._before for row in load.results()])
