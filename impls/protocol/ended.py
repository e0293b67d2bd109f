"""An epoch that has ended, for whoever reads the state as it was then."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from impls.protocol.controller import Controller
from impls.protocol.plan import WrittenPlan


@dataclass(frozen=True, eq=False)
class EndedEpoch:
    """An epoch of a query that has ended.

    Attributes:
        epoch: its number, -1 before the first.
        location: int32, shape (B,): which worker held each bin at its end.
        queued: number of records that waited then, as their bins were on their way: no state has them yet.
        now: processing time of the epoch, ms, None where the operator asks for none.
    """

    epoch: int
    location: NDArray[np.int32]
    queued: int = 0
    now: int | None = None

    def piece(self, number: int, pieces: int) -> list[int]:
        """Returns the bins of one of several pieces, numbered from 0: each reads the changelog of few workers."""
        bins: list[int] = np.array_split(np.argsort(self.location, kind="stable"), pieces)[number].tolist()
        return bins

    @classmethod
    def of(cls, controller: Controller, written: WrittenPlan | None) -> "EndedEpoch":
        """Returns the last epoch that a controller has observed, given its plan if that is known."""
        clock = None if written is None else written.clock
        now = None if clock is None else clock.now
        return cls(controller.observed, controller.location.copy(), int(controller.queued.sum()), now)
