"""Replicas: which of them a plan brings up or runs beside their owners, and which there are. Pure.

For mechanisms that copy before they move (Rhino, replicated dataflow, Spacker); the others meet none of it.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from impls.errors import InvalidPlanError
from impls.protocol.view import Observation, View

Pairs = tuple[tuple[int, int], ...]
NEVER = 1 << 30


@dataclass(frozen=True)  # without slots, as EpochOrder
class Copies:
    """The part of a plan that copies bins to workers that do not own them.

    Attributes:
        replicas: (bin, worker) pairs whose replica is brought up to the last epoch.
        standbys: (bin, worker) pairs: the worker processes the bin too, its results are not emitted.
    """

    replicas: Pairs = ()
    standbys: Pairs = ()

    @property
    def all(self) -> Pairs:
        """Both."""
        return (*self.replicas, *self.standbys)

    def check(self, view: View, routing: NDArray[np.int32], held: tuple[int, ...]) -> None:
        """Raises InvalidPlanError that names the rule and the bin for copies that break one; see `plan.validate`.

        Args:
            view: what the mechanism knew.
            routing: of the plan, int32, shape (B,).
            held: bins that the plan holds.
        """
        for rule, pairs in (("replica", self.replicas), ("standby", self.standbys)):
            if len(set(pairs)) != len(pairs):
                raise InvalidPlanError(f"rule {rule}: a pair of bin and worker is named twice")
            for bin_, worker in pairs:
                if not 0 <= bin_ < view.bins:
                    raise InvalidPlanError(f"rule {rule}: bin {bin_} does not exist")
                if not 0 <= worker < view.workers:
                    raise InvalidPlanError(f"rule {rule}: bin {bin_} names worker {worker}, which does not exist")
                if worker == routing[bin_]:
                    raise InvalidPlanError(f"rule {rule}: bin {bin_} names its own owner {worker}")
        for bin_, worker in self.standbys:
            if (bin_, worker) not in view.replicas:
                raise InvalidPlanError(f"rule standby: bin {bin_} is processed twice by a worker without its replica")
            if routing[bin_] != view.location[bin_] or bin_ in held:
                raise InvalidPlanError(f"rule standby: bin {bin_} is processed twice but not processed by its owner")


NO_COPIES = Copies()


def pairs_of(bins: NDArray[np.intp], workers: NDArray[np.int32]) -> Pairs:
    """Returns (bin, worker) pairs of two arrays of one shape."""
    return tuple(zip(bins.tolist(), workers.tolist(), strict=True))


def lags(view: View, bins: NDArray[np.intp], workers: NDArray[np.int32]) -> NDArray[np.int64]:
    """Returns how many epochs the replica of each bin at its worker is behind, a large number for none."""
    shown = [view.replicas.get(pair, -NEVER) for pair in pairs_of(bins, workers)]
    return view.epoch - 1 - np.array(shown, np.int64)


def due_replicas(
    view: View, bins: NDArray[np.intp], workers: NDArray[np.int32], interval_epochs: int, budget_bytes: int
) -> Pairs:
    """Returns those of standing replicas that an epoch without a migration brings up to date.

    Each has its turn once in an interval; one that is missing, or further behind, is due at once: see `within_bytes`.
    """
    lag = lags(view, bins, workers)
    resting = (view.location == view.routing)[bins]
    turn = ((view.epoch + bins) % interval_epochs == 0) & (lag > 0)
    due = np.flatnonzero(resting & (turn | (lag > interval_epochs)))
    return within_bytes(view, bins[due], workers[due], lag[due], budget_bytes)


def within_bytes(
    view: View, bins: NDArray[np.intp], workers: NDArray[np.int32], lag: NDArray[np.int64], budget_bytes: int
) -> Pairs:
    """Returns the (bin, worker) pairs to bring up in this epoch, in the order given.

    Refreshing a replica that is there is cheap and always done; making one counts with the bin's size against the
    budget of its worker, of which each gets at least one an epoch.
    """
    spent: dict[int, int] = {}
    chosen = []
    for bin_, worker, behind in zip(bins.tolist(), workers.tolist(), lag.tolist(), strict=True):
        size = int(view.size[bin_])
        if behind < NEVER:
            chosen.append((bin_, worker))
        elif worker not in spent or spent[worker] + size <= budget_bytes:
            spent[worker] = spent.get(worker, 0) + size
            chosen.append((bin_, worker))
    return tuple(chosen)


class Replicas:
    """observe() epochs, forget() what a plan deletes.

    Attributes:
        known: (bin, worker) -> the epoch whose end the worker's replica of the bin shows.
    """

    def __init__(self) -> None:
        self.known: dict[tuple[int, int], int] = {}
        self._left: set[tuple[int, int]] = set()  # of bins that their worker owns by now, and not deleted yet

    def observe(self, seen: Observation, location: NDArray[np.int32]) -> None:
        """Takes in refreshed replicas; a replica whose worker now owns the bin is no longer one."""
        self.known |= {(bin_, worker): epoch for bin_, worker, epoch in seen.replicas}
        self._left -= self.known.keys()
        for pair in [(bin_, int(location[bin_])) for bin_ in seen.pulled]:
            if self.known.pop(pair, None) is not None:
                self._left.add(pair)

    def unwanted(self, wanted: Pairs) -> Pairs:
        """Returns the replicas that are still on a worker's disk and not among those wanted, ascending."""
        return tuple(sorted((self.known.keys() | self._left) - {*wanted}))

    def forget(self, pairs: Pairs) -> None:
        """Takes in that workers delete replicas."""
        for pair in pairs:
            self.known.pop(pair, None)
            self._left.discard(pair)

    def to_json(self) -> dict[str, Any]:
        """Returns all that later epochs depend on, ready for JSON."""
        known = [[bin_, worker, at] for (bin_, worker), at in sorted(self.known.items())]
        return {"replicas": known, **({"left": sorted(map(list, self._left))} if self._left else {})}

    def restore(self, data: dict[str, Any]) -> None:
        """Takes over what `to_json` of another one gave."""
        self.known = {(bin_, worker): at for bin_, worker, at in data["replicas"]}
        self._left = {(bin_, worker) for bin_, worker in data.get("left", ())}
