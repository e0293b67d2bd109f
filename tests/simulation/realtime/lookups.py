"""Keys looked at between any two steps: what a reader beside the workers sees is what their commits have left."""

from collections import Counter
from random import Random
from typing import Any
from unittest import mock

from chaos.violation import require

from impls.driver.keystate import KeyState
from impls.errors import StateError
from impls.reading import points
from realtime.commits import Commit, Commits
from realtime.parameters import Parameters
from realtime.query import Query

_SHARE = 0.1  # of all steps
_AWAY = {"lose", "damage", "flip"}  # an environment of a moment ago may be gone
_FORGETS = {*_AWAY, "driver", "journal"}  # a driver that has begun does not know yet what is being pulled


def counting(p: Parameters) -> bool:
    """Returns whether a query counts keys, all of them, in one version."""
    return p.operator in {"dense", "hash", "preloaded"} and not p.changes and not p.refused


class Looks:
    """look() behind a step reads all keys now and then, of queries that count and go on in one version."""

    def __init__(self, p: Parameters, query: Query, commits: Commits):
        self._p, self._query, self._commits, self._random = p, query, commits, Random(p.seed + 31)
        self._keys: dict[int, tuple[Commit, Counter[int | None]]] = {}

    def look(self) -> None:
        """Requires that keys have the records of the epochs that answers name, and none that no commit has."""
        if not counting(self._p) or self._random.random() >= _SHARE:
            return
        fired, keys = self._query.fired, range(self._p.keys)
        try:
            with mock.patch.object(points, "_PATIENCE_S", 0.0), mock.patch.object(points, "_PAUSE_S", 0.0):
                states = self._reader().get_many(keys)
        except StateError as error:
            expected = self._query.driver.last_epoch < 1 or fired & _AWAY
            require(expected, "lookup", f"keys cannot be read: {error}")
            return
        if not fired & _AWAY:
            commits = [(commit.epoch, self._counted(commit)) for commit in self._commits.held]
            for state in states:
                self._check(state, commits, exact=not fired & _FORGETS)

    def applied(self, epoch: int) -> Counter[int | None]:
        """Returns how many records of each key the commits up to the end of an epoch have applied."""
        return sum((self._counted(one) for one in self._commits.held if one.epoch <= epoch), Counter())

    @staticmethod
    def _check(state: KeyState, commits: list[tuple[int, Counter[int | None]]], *, exact: bool) -> None:
        most = sum(keys[state.key] for _, keys in commits)
        least = most if exact else sum(keys[state.key] for epoch, keys in commits if epoch <= state.epoch)
        require(
            least <= (state.value or 0) <= most, "lookup",
            f"key {state.key} has the count {state.value} at epoch {state.epoch}; its commits have {least} to {most}",
        )  # fmt: skip

    def _counted(self, commit: Commit) -> Counter[int | None]:
        """Returns how many records of each key a commit has applied."""
        load = self._query.load
        if id(commit) not in self._keys:  # kept with the commit, which keeps its identity
            found = [load.places.find(place) for place, _, _ in commit.records]
            self._keys[id(commit)] = commit, Counter(load.log[partition][index][0] for partition, index in found)
        return self._keys[id(commit)][1]

    def _reader(self) -> Any:
        query = self._query
        return points.PointReader(query.driver, query.checkpoint, query.spec, int)
