"""The record of a finished epoch: what its listeners get."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from impls.protocol.events import Event
from impls.protocol.plan import WrittenPlan
from impls.protocol.report import Report

__all__ = ["EpochRecord"]


@dataclass(frozen=True, slots=True)
class EpochRecord:
    """The record of a finished epoch.

    Attributes:
        written: the plan it obeyed.
        begin_us, end_us: wall clock of foreachBatch's begin and end, µs.
        reports: one per worker, ascending.
        cells: latency cells by worker, dtype CELL.
        ms: between (end of the last epoch to begin of this one), plan, build, job,
            sink (a function of the user's, where results go to one), observe; milliseconds.
        misplaced: bins not at their goal after the epoch.
        durable_bytes: size of changelog and snapshots after the epoch.
        events: migrations that began or ended with it.
        state_bytes: size of the state of all bins.
    """

    written: WrittenPlan
    begin_us: int
    end_us: int
    reports: list[Report]
    cells: dict[int, NDArray[np.void]]
    ms: dict[str, float]
    misplaced: int
    durable_bytes: int
    events: tuple[Event, ...] = ()
    state_bytes: int = 0
