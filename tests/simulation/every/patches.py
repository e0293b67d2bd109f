"""What is put in place of time and identities so that a state is the same however the world came to it."""

import contextlib
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from unittest import mock

from realtime.parameters import Parameters
from realtime.patches import simulated

from every.failure import Failure
from impls.driver import checkpoint
from impls.protocol import events
from impls.store import environment
from impls.worker.environment import Environment


class Still:
    """A clock that stands."""

    @staticmethod
    def time_ns() -> int:
        """Returns the wall clock, ns."""
        return 1_700_000_000_000_000_000

    @staticmethod
    def perf_counter() -> float:
        """Returns seconds."""
        return 1_700_000_000.0

    monotonic = perf_counter

    @staticmethod
    def sleep(seconds: float) -> None:
        """Raises what nobody may come to: with one thread whatever is waited for never happens."""
        raise AssertionError(f"somebody waits for {seconds} s")


@contextlib.contextmanager
def small_world(p: Parameters, failure: Callable[[], Failure | None]) -> Iterator[None]:
    """Makes the runtime see a clock that stands, and identities by task."""
    numbers: Counter[Any] = Counter()

    def identity() -> uuid.UUID:
        known = failure()
        task = -1 if known is None or known.task is None else known.task
        numbers[task] += 1
        return uuid.UUID(int=(task + 2 << 64) + numbers[task], version=4)

    def point(name: str) -> int:
        known = failure()
        return 0 if known is None else known.point(name)

    with contextlib.ExitStack() as stack:
        stack.enter_context(simulated(p, point, Still))
        for module in (checkpoint, environment, events):
            stack.enter_context(mock.patch.object(module, "uuid", SimpleNamespace(uuid4=identity)))
        stack.enter_context(mock.patch.object(Environment, "used_bytes", 0))
        yield
