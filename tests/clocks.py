"""A clock that a test sets, for one module: threads of libraries, which sleep and wait too, keep the real one."""

import time
from collections.abc import Callable
from typing import Any


class Clock:
    """Stands in one module for the module `time`: `now` is its monotonic time in seconds, and sleeping moves it."""

    def __init__(self, now: float = 1000.0, sleep: Callable[[float], None] | None = None):
        self.now = now
        self.sleep = sleep or self._pass

    def monotonic(self) -> float:
        return self.now

    def _pass(self, seconds: float) -> None:
        self.now += seconds

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


def set_clock(monkeypatch: Any, module: str, **given: Any) -> Clock:
    """Gives the module of that name a clock of its own until the test ends."""
    clock = Clock(**given)
    monkeypatch.setattr(f"{module}.time", clock)
    return clock
