"""The input of a placement policy."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Placing"]


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
