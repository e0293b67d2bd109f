"""Placement policies: which worker is to own which bin. One module each, found by glob.

A policy is a function `place(placing, *, option=default, ...)`, pure and deterministic. It is named by a text: the name
of its module, with options NAME:OPTION=VALUE,OPTION=VALUE. Adding one adds a module to this folder.
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from impls.errors import UsageError
from impls.protocol.arrays import check_bins
from impls.protocol.named import modules_with, read_policy


@dataclass(frozen=True, slots=True)
class Placing:
    """The question to a policy; arrays have one entry per bin, shape (B,).

    Attributes:
        current: int32, worker that owns the bin now; may name workers that are to go.
        workers: number of workers of the goal, 0..workers-1.
        rates: records per epoch of each bin, None where nothing was measured.
        sizes: bytes of state of each bin, None where nothing was measured.
    """

    current: NDArray[np.int32]
    workers: int
    rates: NDArray[np.float64] | None = None
    sizes: NDArray[np.int64] | None = None

    @property
    def bins(self) -> int:
        """Number of bins."""
        return len(self.current)


class Policy(Protocol):
    """Computes a goal (int32, shape (B,)); raises UsageError for an option out of range."""

    def __call__(self, placing: Placing, /, **options: float) -> NDArray[np.int32]:
        """Returns the goal."""


@cache
def policies() -> dict[str, Policy]:
    """Returns the policies by name: modules of this folder that define a function `place`."""
    return modules_with(Path(__file__).parent, __name__, "place")


def goal(
    policy: str,
    current: NDArray[np.int32],
    workers: int,
    *,
    rates: NDArray[np.float64] | None = None,
    sizes: NDArray[np.int64] | None = None,
) -> NDArray[np.int32]:
    """Returns a policy's goal; see `Placing` for its input.

    Raises:
        UsageError: an unknown policy or option, an option out of range, no worker, or more workers than bins.
    """
    name, options = read_policy("placement policy", policy, policies())
    if workers < 1:
        raise UsageError(f"A query needs at least 1 worker, not {workers}.")
    check_bins(len(current), workers)
    return policies()[name](Placing(np.asarray(current, np.int32), workers, rates, sizes), **options)


def initial(bins: int, workers: int, policy: str = "contiguous") -> NDArray[np.int32]:
    """Returns the assignment a query starts with: what the policy makes of contiguous ranges.

    That is the ranges themselves for every policy but consistent hashing, whose ring it must be on from the start.
    """
    return goal(policy, goal("contiguous", np.zeros(bins, np.int32), workers), workers)
