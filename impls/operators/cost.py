"""What a record costs: waiting or computing, and what its key keeps besides the count."""

import time

import numpy as np

from impls.errors import UsageError

__all__ = ["COSTS", "VALUE_BYTES_MAX", "check_cost", "padding", "pay"]

COSTS = ("wait", "compute")
VALUE_BYTES_MAX = 1 << 20
_COST_US_MAX = 1_000_000
_WORK = np.arange(2_000, dtype=np.uint64)  # a few microseconds of work


def check_cost(cost_us: float, cost: str, value_bytes: int = 0) -> None:
    """Raises UsageError for an impossible cost or number of bytes."""
    if cost not in COSTS:
        raise UsageError(f"The cost of a record is {' or '.join(COSTS)}, not {cost!r}.")
    if not 0 <= cost_us <= _COST_US_MAX:  # false for NaN too
        raise UsageError(f"The cost of a record must be from 0 to {_COST_US_MAX} µs, not {cost_us:g}.")
    if not 0 <= value_bytes <= VALUE_BYTES_MAX:
        raise UsageError(f"The bytes of value per key must be from 0 to {VALUE_BYTES_MAX}, not {value_bytes}.")


def pay(records: int, cost_us: float, cost: str) -> None:
    """Spends the cost of all records in one go; results never depend on it.

    Waiting is a remote call or I/O: it takes no processor, so that more workers finish sooner even on few cores.
    Computing takes that much processor time of this thread, however long that lasts on a busy machine.
    """
    if cost == "wait":
        time.sleep(records * cost_us / 1e6)
        return
    end = time.thread_time() + records * cost_us / 1e6
    while time.thread_time() < end:
        np.bitwise_count(_WORK).sum()


def padding(name: bytes, size: int) -> bytes:
    """Returns `size` bytes that follow from a key's name alone."""
    return (name * -(-size // max(len(name), 1)))[:size]
