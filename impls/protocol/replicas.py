"""Which replicas there are, as the controller knows it: those that were brought up and nobody has deleted since."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from impls.protocol.mechanism import Mechanism
from impls.protocol.moves import Pairs
from impls.protocol.plan import EpochPlan, validate
from impls.protocol.view import Observation, View


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

    def at_rest(self, mechanism: Mechanism, view: View, plan: EpochPlan) -> tuple[EpochPlan, Pairs]:
        """Returns the plan of an epoch without a migration with the replicas that it refreshes, and those it deletes.

        These are all that are still on a worker's disk and that the mechanism does not want. Raises InvalidPlanError.
        """
        if pairs := mechanism.replicas(view):
            plan = replace(plan, replicas=pairs)
            validate(plan, view)
        wanted = {*plan.replicas, *mechanism.standing(view)}
        return plan, tuple(sorted((self.known.keys() | self._left) - wanted))

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
