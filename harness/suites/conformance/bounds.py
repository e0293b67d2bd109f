"""Within how many epochs each mechanism completes a migration: the one place where that is stated.

A migration is one or two *legs*: bins that are under way go on to where they are routed, then bins go from where they
rest to their goal. A bound is stated for a leg. Bins that wait for something first (a queue, the other leg) form a leg
of their own behind it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from impls import catalog
from impls.protocol.view import View


@dataclass(frozen=True, slots=True)
class _Leg:
    """Bins to move: the old and the new owner, int32, and the bytes, int64, of each; shape (n,)."""

    source: NDArray[np.int32]
    target: NDArray[np.int32]
    size: NDArray[np.int64]

    def matchings(self, per_pair: int) -> int:
        """Returns the most maximal matchings, `per_pair` bins of each matched pair, until all bins are moved.

        A pair that a step passes over is kept from it by another one at its old or its new owner. So it waits for no
        more steps than the others at these two workers need.
        """
        (sources, targets), bins = np.unique(np.stack([self.source, self.target]), axis=1, return_counts=True)
        steps = -(-bins // per_pair)
        given, taken = np.bincount(sources, steps), np.bincount(targets, steps)
        return int((given[sources] + taken[targets] - steps).max())

    def packed(self, budget: float) -> int:
        """Returns the epochs in which every worker gets its bins, `budget` bytes an epoch, at least one bin in each.

        An epoch takes more than half of the budget when no bin is larger than the other half.
        """
        most = 0
        for worker in np.unique(self.target):
            sizes = self.size[self.target == worker]
            halves = 1 + int(2 * sizes.sum() / budget) if 0 < sizes.max() <= budget / 2 else len(sizes)
            most = max(most, min(len(sizes), halves))
        return most


def _per_pair(leg: _Leg, options: Mapping[str, Any]) -> int:
    """Returns the bins that a matched pair moves at least in a step, if it has as many."""
    most, budget, largest = int(options["bins_per_pair"]), options["bytes_per_pair"], int(leg.size.max(initial=0))
    return min(most, max(1, budget // largest)) if budget and largest else most


_Bound = Callable[[_Leg, Mapping[str, Any]], int]


_BOUNDS: dict[str, _Bound] = {
    # Everything in one epoch; a restart's stop is before it and no epoch of its own.
    **dict.fromkeys(
        ("external-state", "megaphone-all-at-once", "restart-application", "runtime-restart"), lambda _leg, _options: 1
    ),
    # Everything in one epoch, whose records run in the next.
    "partial-pause": lambda _leg, _options: 2,
    # One bin an epoch.
    "megaphone-fluid": lambda leg, _options: len(leg.source),
    # A step is a maximum matching, and so a maximal one; gaps follow.
    "megaphone-batched": lambda leg, options: leg.matchings(_per_pair(leg, options)) * (options["gap_epochs"] + 1),
    # As many as the budget allows in each epoch; what waited runs in the epoch after the last at the latest.
    "order-unaware": lambda leg, options: leg.packed(options["pull_budget_bytes"]) + 1,
    # The same; bins that no record needs come within their share of the budget.
    "meces": lambda leg, options: leg.packed(options["pull_budget_bytes"] * options["background_share"]),
    # At least one bin of a subscale an epoch.
    "drrs": lambda leg, _options: len(leg.source),
    # Chunks, one of which may end where bins with replicas do.
    "spacker": lambda leg, options: len(leg.source) // (options["chunk_bins"] or len(leg.source)) + 2,
    # The first copies, then the handover.
    "rhino": lambda leg, options: leg.packed(options["replicate_bytes"]) + 1,
    # The first copies, an epoch in which both owners process, then the handover.
    "replicated-dataflow": lambda leg, options: leg.packed(options["replicate_bytes"]) + 2,
}


def completes(name: str) -> bool:
    """Returns whether a mechanism migrates at all: the control does not."""
    return name != "none"


def bound(name: str, options: Mapping[str, Any], view: View) -> int:
    """Returns the most epochs from the one that `view` is of to the migration's last one, both included.

    A mechanism that is not in the table may take an epoch per bin.

    Args:
        name: the mechanism.
        options: those that differ from their defaults.
        view: what is known when the migration begins, or in the middle of it.
    """
    per_leg, every = _BOUNDS.get(name, _BOUNDS["megaphone-fluid"]), {**catalog.options(name), **options}
    under_way, onwards = view.location != view.routing, view.routing != view.goal
    legs = [
        _Leg(view.location[under_way], view.routing[under_way], view.size[under_way]),
        _Leg(view.routing[onwards], view.goal[onwards], view.size[onwards]),
    ]
    first, last = (per_leg(leg, every) if len(leg.source) else 0 for leg in legs)
    if not under_way.any() and not view.queued.any():
        return max(last, 1)
    return first + 2 * last + 2  # bins at rest without a queue may go first, the others follow; a queue takes an epoch
