"""Placement policies: which worker shall own which bin. One module each, found by glob."""

from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from impls.errors import UsageError
from impls.runtime.hashing import check_bins

__all__ = ["Policy", "goal", "initial", "policies"]


class Policy(Protocol):
    """Computes a goal (int32, shape (B,)) from the current assignment and a worker count; deterministic."""

    def __call__(self, current: NDArray[np.int32], workers: int) -> NDArray[np.int32]:
        """Returns the goal."""


@cache
def policies() -> dict[str, Policy]:
    """Returns the policies by name: modules of this folder that hold a function `place`."""
    modules = [path.stem for path in sorted(Path(__file__).parent.glob("*.py")) if not path.stem.startswith("_")]
    return {name: import_module(f"impls.placement.{name}").place for name in modules}


def goal(policy: str, current: NDArray[np.int32], workers: int) -> NDArray[np.int32]:
    """Returns a policy's goal; raises UsageError for an unknown policy, no worker, or more workers than bins."""
    if policy not in policies():
        raise UsageError(f"The placement policy {policy!r} is unknown: use one of {', '.join(policies())}.")
    if workers < 1:
        raise UsageError(f"A query needs at least 1 worker, not {workers}.")
    check_bins(len(current), workers)
    return policies()[policy](current, workers)


def initial(bins: int, workers: int) -> NDArray[np.int32]:
    """Returns the assignment a query starts with: contiguous ranges."""
    return goal("contiguous", np.zeros(bins, np.int32), workers)
