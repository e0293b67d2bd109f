"""The ranges of policies' options."""

import math

from impls.errors import UsageError

__all__ = ["check_range"]


def check_range(
    name: str, value: float, low: float, high: float, *, low_open: bool = False, high_open: bool = False
) -> None:
    """Raises UsageError for a value that is not from low to high, or is an end that the range leaves out."""
    above = value > low if low_open else value >= low
    below = value < high if high_open else value <= high
    if not (above and below):  # true for NaN too
        begin, end = "above" if low_open else "at least", "below" if high_open else "at most"
        upper = "" if high == math.inf else f" and {end} {high:g}"
        raise UsageError(f"{name} must be {begin} {low:g}{upper}, not {value:g}.")
