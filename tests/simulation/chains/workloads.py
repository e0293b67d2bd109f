"""The input of the queries, and what must come of it: that of most is the topics of others."""

import json
from collections import Counter
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from chaos.violation import require
from linked_operators import DISORDER, SIZE
from realtime.topic import Topic
from realtime.workload import Workload, _text

from chains.clocked import END, EVENT, MOST, NOBODY, columns_of
from chains.parameters import CLOCKED_DISORDER, NAMES, UNITS, StageParameters

Row = dict[str, Any]
Number = tuple[int, int, int, int]  # topic, worker, epoch, index
_EPOCH_BITS = 31  # below them is a result's index
_FAR = 1_000_000  # the time of the last record of each partition
_STEPS = {"each": 0.1}  # how often the time goes on by 1 with a record, where that is not as often as not


class StageWorkload(Workload):
    """The input of one query of a chain.

    Attributes:
        topic: of the query's results.
    """

    text = frozenset[str]()
    topic: Topic

    def results(self) -> list[Row]:
        """Returns the query's results, in any order."""
        raise NotImplementedError

    def answers(self) -> list[str]:
        """Returns them as text."""
        return sorted(map(_text, self.results()))


class Counted(StageWorkload):
    """Records whose times go on, those of a partition out of order within the disorder."""

    _p: StageParameters
    disorder = DISORDER

    def _timed_rows(self) -> list[tuple[int, int, dict[str, Any]]]:
        now, found = 1_000, []
        for _ in range(self._p.records):
            now += self._random.random() < _STEPS.get(self._p.runs, 0.5)
            at, name = now - self._random.randrange(self.disorder), self._random.randrange(NAMES)
            found.append((self._random.randrange(self._p.partitions), name, {"at": at}))
        return found + [(partition, NOBODY, {"at": _FAR}) for partition in range(self._p.partitions)]

    def results(self) -> list[Row]:
        """Returns the records by end of window and name."""
        rows = ((name, columns["at"]) for log in self.log for name, _, columns in log if name != NOBODY)
        counts = Counter((at - at % SIZE + SIZE, name) for name, at in rows)
        return [{"end": end, "name": name, "n": n} for (end, name), n in counts.items()]


class Clocked(Counted):
    """The same for an operator with a clock: keys are names, or a window and a name; records may be late."""

    disorder = CLOCKED_DISORDER

    def _timed_rows(self) -> list[tuple[int, int, dict[str, Any]]]:
        self.counted = Counter[tuple[int, int]]()  # by end of window and name
        plain, (unit, size), rows = super()._timed_rows(), UNITS[self._p.runs], []
        for partition, name, columns in plain:
            at = columns["at"]
            end = at - at % size + size if size else at
            self.counted[end * unit, name] += name != NOBODY
            key = name if self._p.runs == "closed" else end * unit * MOST + name
            rows.append((partition, key, columns_of(self._p.runs, name, at * unit, end * unit)))
        return rows

    def key_bytes(self, key: int) -> bytes:
        """Returns a key: for a processor as `impls.processor.keys` has it."""
        return super().key_bytes(key) if self._p.runs != "closed" else b"\1" + super().key_bytes(key)

    @staticmethod
    def answer(value: bytes) -> str:
        """Returns a result as `answers` has it: without the column of its event time."""
        return _text(_of_window(value))

    def results(self) -> list[Row]:
        """Returns all windows' counts, where records can be late what was sent: of each window once, and no more."""
        if self._p.runs == "each":
            return [{"end": end, "name": name, "n": 1} for end, name in self.counted.elements()]
        if self._p.exact:
            return [{"end": end, "name": name, "n": n} for (end, name), n in self.counted.items() if n]
        sent = {row[:3]: _of_window(row[-1]) for row in self.topic.rows}
        found = Counter[tuple[int, int]]()
        for row in sent.values():
            place = row["end"], row["name"]
            require(place not in found, "windows", f"the window and name {place} have two results")
            found[place] = row["n"]
        require(found <= self.counted, "windows", f"windows have too many: {found - self.counted}")
        return list(sent.values())


def _of_window(value: bytes) -> Row:
    row = json.loads(value)
    return {name: row[name] for name in ("end", "name", "n")}


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


def _wide(rows: list[Row]) -> list[Row]:
    """Returns how often each number came in each window of _WIDE."""
    found = Counter((_end_of_wide(row), row["n"]) for row in rows)
    return [{"end": end, "n": n, "times": times} for (end, n), times in found.items()]


def _end_of_wide(row: Row) -> int:
    """Returns the end of the window that holds the last µs of a row's."""
    end: int = -(-row["end"] // _WIDE) * _WIDE
    return end


_WIDE = 1_000  # µs
_RESULTS = {"highest": (_highest, "end"), "spread": (_spread, "n"), "wide": (_wide, "end")}
"""What is computed, and by which column."""


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
        by = row[self._key]
        if self._p.runs == "wide":
            end = _end_of_wide(row)
            by, row = end * MOST + row["n"], {"end": end, "n": row["n"], EVENT: row["end"], END: end}
        if (topic, worker, epoch, index) in self._seen:
            self.senders.repeats.add((partition, len(self.log[partition])))
        self._seen.add((topic, worker, epoch, index))
        producer = -1 - worker * self._p.partitions - partition
        self.senders.numbers[partition].append((producer, epoch << _EPOCH_BITS | index))
        self._add(partition, (by, self.bin_of(by), row), {partition})

    def results(self) -> list[Row]:
        """Returns what is computed of the results of the queries before."""
        return self._compute([row for load in self._before for row in load.results()])
