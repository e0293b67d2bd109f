"""Cuts made between any two steps and read some steps later: each has what all commits up to its epoch have left."""

from collections import Counter
from dataclasses import dataclass
from random import Random

from chaos.violation import require

from impls.errors import StateError, UsageError
from impls.reading.cuts import Cut
from realtime.lookups import Looks, counting
from realtime.parameters import Parameters
from realtime.query import Query

_SHARE = 0.01  # of all steps
_STEPS = 1500  # for which a cut is open at most: some epochs


@dataclass(frozen=True)
class _Open:
    cut: Cut
    start: int
    until: int


class Cuts:
    """look() behind a step makes a cut now and then, and reads one that is due, of queries that count."""

    def __init__(self, p: Parameters, query: Query, looks: Looks):
        self._p, self._query, self._looks, self._random = p, query, looks, Random(p.seed + 57)
        self._open: list[_Open] = []
        self._step = 0

    def look(self) -> None:
        """Requires that what a cut shows is what the commits of its epoch and of those before have applied."""
        if not counting(self._p) or self._query.driver.keeper is None:
            return
        self._step += 1
        for one in [one for one in self._open if one.until <= self._step]:
            self._open.remove(one)
            self._read(one)
        if self._random.random() < _SHARE:
            self._make()

    def end(self) -> None:
        """Reads the cuts that are left."""
        for one in self._open:
            self._read(one)

    def _make(self) -> None:
        driver, query = self._query.driver, self._query
        try:
            cut = Cut.of(driver.keeper, query.checkpoint.folder)
        except UsageError as error:
            require(driver.last_epoch < 0 or len(self._open) > 15, "cut", f"there is none: {error}")
            return
        self._open.append(_Open(cut, query.starts, self._step + self._random.randrange(_STEPS)))

    def _read(self, one: _Open) -> None:
        with one.cut as cut:
            try:
                frame = cut.to_pandas()
            except StateError as error:
                require(one.start != self._query.starts, "cut", f"it cannot be read: {error}")
                return
        found = Counter(dict(zip(frame.key, frame.value, strict=True)))
        expected = self._looks.applied(cut.epoch)
        differing = {key for key in found.keys() | expected.keys() if found[key] != expected[key]}
        require(
            not differing, "cut",
            f"of epoch {cut.epoch} it has {[(key, found[key]) for key in sorted(differing)][:3]}, the commits have "
            f"{[(key, expected[key]) for key in sorted(differing)][:3]}",
        )  # fmt: skip
