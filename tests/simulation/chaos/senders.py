"""Who has sent the records of the simulated input, where they are another query's results, and what they send again."""

from random import Random
from typing import Generic, TypeVar

from impls.store.records import NUMBER, PRODUCER

COLUMNS = (PRODUCER, NUMBER)
_WORKERS = 2  # of the other query, for each partition
_AGAIN_MOST = 6
_R = TypeVar("_R")


class Senders(Generic[_R]):
    """sent() for each record in the order of its partition; again() for what is sent again behind it.

    Attributes:
        numbers: by partition, producer and number of each record.
        repeats: (partition, index) of those that were sent again.
    """

    def __init__(self, seed: int, rate: float, partitions: int):
        self._random, self.rate = Random(seed + 31), rate
        self.numbers: list[list[tuple[int, int]]] = [[] for _ in range(partitions)]
        self.repeats: set[tuple[int, int]] = set()
        self._last: dict[int, int] = {}
        self._known: dict[int, list[tuple[int, _R]]] = {}  # by producer, numbers and records that may come again

    def sent(self, partition: int, record: _R, *, again: bool = True) -> None:
        """Takes in a record, and whether it may be sent again."""
        producer = self._one_of(partition)
        number = self._last.get(producer, -1) + self._random.choice((1, 1, 1, 40))
        self._last[producer] = number
        self.numbers[partition].append((producer, number))
        if again:
            self._known.setdefault(producer, []).append((number, record))

    def _one_of(self, partition: int) -> int:
        return -1 - partition * _WORKERS - self._random.randrange(_WORKERS)

    def again(self, partition: int) -> list[_R]:
        """Returns the records that are sent again now, the last ones of a worker; they follow in the partition."""
        if self._random.random() >= self.rate:
            return []
        producer = self._one_of(partition)
        found = self._known.get(producer, [])[-self._random.randint(1, _AGAIN_MOST) :]
        for number, _ in found:
            self.repeats.add((partition, len(self.numbers[partition])))
            self.numbers[partition].append((producer, number))
        return [record for _, record in found]
