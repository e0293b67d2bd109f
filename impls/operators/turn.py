"""What bins of an operator with event time get in one epoch, and what comes of it."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from impls.protocol.eventtime import EpochClock, Partial
from impls.store.records import Results

__all__ = ["Turn", "Turned"]


@dataclass(frozen=True)
class Turn:
    """One epoch's input of the bins that are marked: bool of shape (B,)."""

    bins: NDArray[np.bool_]
    watermark: int | None
    records: pa.Table | None = None
    merged: Sequence[Partial] = ()
    clock: EpochClock | None = None


@dataclass
class Turned:
    """The effects of turns: results, partials merged within the worker, late records, timers fired."""

    results: Results = field(default_factory=Results.none)
    partials: list[Partial] = field(default_factory=list)
    late: int = 0
    fired: int = 0
