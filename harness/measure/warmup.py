"""When a run had warmed up: the time of an epoch has settled."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.measure.way import pace_ms

__all__ = ["RULE", "WarmUp", "warm_up"]

_WIDTH, _HOLD, _EPOCHS_MIN, _TOLERANCE = 3, 5, 8, 1.25
_TICK_TOLERANCE = 2.0  # medians of some 20 ms differ more than epochs of 200
RULE = (
    f"Warm-up ends with the lead-in, or later where an epoch begins from which the median time of {_WIDTH} epochs in a "
    f"row, and of the {_HOLD - 1} next such groups, is within a factor of {_TOLERANCE} of the median over the second "
    "half of all epochs before the first command. In real time the median latency of a tick's records stands for the "
    f"time of an epoch, and the factor is {_TICK_TOLERANCE:g}."
)


@dataclass(frozen=True)
class WarmUp:
    """When warm-up ended, in wall clock us, or None and the reason."""

    end_us: int | None
    reason: str = ""


def warm_up(epochs: Sequence[dict[str, Any]], start_us: int, first_begin_us: int | None, lead_in_us: int = 0) -> WarmUp:
    """Finds the end of the warm-up by `RULE`.

    Args:
        epochs: the epoch log in order.
        start_us: begin of the load.
        first_begin_us: begin of the first migration, None without one.
        lead_in_us: load that counts as warm-up in any case.
    """
    chosen = [
        e
        for e in epochs
        if e["begin_us"] >= start_us
        and (first_begin_us is None or e["end_us"] <= first_begin_us)
        and pace_ms(e) is not None
    ]
    ticks = any("latency_ms" in e for e in epochs)
    what, tolerance = ("ticks", _TICK_TOLERANCE) if ticks else ("epochs", _TOLERANCE)
    if len(chosen) < _EPOCHS_MIN:
        return WarmUp(None, f"only {len(chosen)} {what} before the first command, {_EPOCHS_MIN} are needed to judge")
    times = np.array([pace_ms(e) for e in chosen], dtype=np.float64)
    reference = float(np.median(times[len(times) // 2 :]))
    rolling = np.median(np.lib.stride_tricks.sliding_window_view(times, _WIDTH), axis=1)
    near = (rolling <= reference * tolerance) & (rolling >= reference / tolerance)
    for first in range(len(near) - _WIDTH + 1):
        begin = chosen[first]["begin_us"] if first else start_us
        if near[first : first + _HOLD].all():
            return WarmUp(max(begin, start_us + lead_in_us))
    of = "the latency of a tick" if ticks else "the time of an epoch"
    return WarmUp(None, f"{of} did not stay near its later median of {reference:.0f} ms")
