"""Waiting with a deadline that says what it waited for."""

import time
from collections.abc import Callable

from impls.errors import StateError

_POLL_S = 0.05


def _nothing() -> None:
    """Does nothing between two looks."""


def wait_for(
    done: Callable[[], bool],
    what: str,
    deadline_s: float,
    *,
    tend: Callable[[], None] = _nothing,
    error: type[Exception] = StateError,
) -> None:
    """Waits until done(), calling `tend` before each look again; raises `error` that names `what` at the deadline."""
    end = time.monotonic() + deadline_s
    while not done():
        tend()
        if time.monotonic() > end:
            raise error(f"Timed out after {deadline_s:.0f} s waiting for {what}.")
        time.sleep(_POLL_S)
