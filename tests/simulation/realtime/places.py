"""Where the rows of the simulated input are: their input partition, offset, and number among those of their record."""

from bisect import bisect_left
from random import Random

Place = tuple[int, int, int]
"""Input partition, offset, row."""

_HASHED = 1 << 62
_LEAST = 1 << 20  # what separates two topics


class Places:
    """add() as rows come; a partition may become that of a topic made anew, whose offsets begin at 0.

    Attributes:
        several: a record can have several rows.
    """

    def __init__(self, seed: int, partitions: int, rows: int):
        self._random, self._rows = Random(seed + 11), rows
        self.several = rows > 1
        topics = self._random.choice((1, 1, 2, 3))
        hashed = self._random.choice((0, 0, _HASHED))
        self._codes = [[hashed + part % topics * _LEAST + part // topics] for part in range(partitions)]
        self._places: list[list[Place]] = [[] for _ in range(partitions)]

    def add(self, partition: int, *, begins: bool) -> None:
        """Takes in the next row of a partition; it is of another record if it `begins` one."""
        places, code = self._places[partition], self._codes[partition][-1]
        before = places[-1] if places and places[-1][0] == code else (code, -1, 0)
        same = not begins and before[1] >= 0 and before[2] + 1 < self._rows and self._random.random() < 0.7
        places.append((code, before[1], before[2] + 1) if same else (code, before[1] + 1, 0))

    def made_anew(self, partition: int) -> None:
        """The topic of a partition is another one from now on.

        Its number sorts behind the one before: a commit here may have records of both, in which the order of a key's
        values counts. With Spark those of the former topic that nobody has read are gone.
        """
        codes = self._codes[partition]
        codes.append((codes[0] & _HASHED) + _LEAST * (100 + sum(map(len, self._codes))))

    def of(self, partition: int, low: int, high: int) -> list[Place]:
        """Returns the places of rows by their index in the log of their partition."""
        return self._places[partition][low:high]

    def begins(self, partition: int, index: int) -> bool:
        """Returns whether a record begins with a row, or would."""
        places = self._places[partition]
        return index >= len(places) or places[index][2] == 0

    def find(self, place: Place) -> tuple[int, int]:
        """Returns the partition of a place and the index of its row."""
        (partition,) = (part for part, codes in enumerate(self._codes) if place[0] in codes)
        return partition, self._index(partition, place)

    def first(self, partition: int, needed: dict[int, int], otherwise: int) -> int:
        """Returns the index of the first row that is needed, by input partition; not before what is known besides."""
        codes = [code for code in self._codes[partition] if code in needed]
        return max([otherwise, *(self._index(partition, (code, needed[code], 0)) for code in codes)])

    def _index(self, partition: int, place: Place) -> int:
        codes = self._codes[partition]
        order = [(codes.index(code), offset, row) for code, offset, row in self._places[partition]]
        return bisect_left(order, (codes.index(place[0]), *place[1:]))
