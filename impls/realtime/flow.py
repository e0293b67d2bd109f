"""Bounds on what waits: how far routers may be ahead, how long a commit waits for them, what threads hand over.

A worker that cannot follow would otherwise get all that comes while it applies what has come before. Each epoch would
be longer than the one before by the factor of the overload, and bins leave a worker at the ends of epochs only.
Records that wait before their router take the routing of their time instead. It is the back-pressure by credits of
other engines.
"""

import math
import threading
import time
from collections.abc import Callable, Collection
from mmap import mmap
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

import numpy as np

from impls.realtime.wire import APPLIED, SENT, WINDOW

_AHEAD_S = 0.25
_FIRST, _LEAST, _MOST = 256, 64, 1 << 20  # records
_KEPT = 0.7  # of a rate that falls: one slow commit says little
_SOURCES = 254  # routers beyond them are not counted


class Pace:
    """took() with each commit of a worker; how many records it may be given before it has applied them.

    Attributes:
        applied: records of all commits.
        window: records that may be on their way to it.
    """

    def __init__(self) -> None:
        self.applied, self.window = 0, _FIRST
        self._rate = 0.0

    def took(self, records: int, seconds: float) -> None:
        """Takes in a commit, its pulls not counted. A small one says little, so that a higher rate counts at once."""
        if not records:
            return
        self.applied += records
        rate = records / max(seconds, 1e-6)
        self._rate = max(rate, _KEPT * self._rate + (1 - _KEPT) * rate)
        self.window = int(min(max(_AHEAD_S * self._rate, _LEAST), _MOST))


class Flow:
    """A worker's side of what routers and workers of a query share of it: a file of int64, shape (slots, 2 + routers).

    Every cell has one writer: of its row a worker the first two, and of its column a router the others (`Flow.java`).
    """

    def __init__(self, path: str | Path, slots: int):
        """Opens the file that `create` has made."""
        with Path(path).open("r+b") as file:  # numpy's own memmap takes µs for each look
            self._cells = np.frombuffer(mmap(file.fileno(), 0), np.int64).reshape(slots, SENT + _SOURCES)

    @classmethod
    def create(cls, path: str | Path, slots: int) -> Self:
        """Makes the file."""
        with Path(path).open("wb") as file:
            file.truncate(slots * (SENT + _SOURCES) * 8)
        flow = cls(path, slots)
        flow._cells[:, WINDOW] = _FIRST
        return flow

    def applied(self, slot: int, records: int, window: int) -> None:
        """Counts records that a worker has applied or queued, and notes how many it may be given."""
        self._cells[slot, WINDOW] = window
        self._cells[slot, APPLIED] += records


class BatchingWindow:
    """wait_s() with the blobs' routers says how long the commit is to wait for those of others.

    A load that comes to several partitions of the input at once leaves their routers one behind the other, by less time
    than a commit takes. A commit for the first one alone would let the others wait until it is committed.

    Args:
        wait_s: no commit waits longer, in seconds.
        lately_s: a router that has sent nothing for so long is not waited for.
    """

    def __init__(self, *, wait_s: float = 0.001, lately_s: float = 0.02):
        self._wait_s, self._lately_s = wait_s, lately_s
        self._sent: dict[int, float] = {}
        self._since: float | None = None

    def wait_s(self, routers: Collection[int], now: float) -> float:
        """Returns for how many seconds to wait for blobs of further routers, 0 when the commit is to begin.

        Args:
            routers: those whose blobs are there.
            now: a clock that does not go back, in seconds.
        """
        self._since = now if self._since is None else self._since
        self._sent.update(dict.fromkeys(routers, now))
        awaited = [at for router, at in self._sent.items() if router not in routers and now - at < self._lately_s]
        left = self._since + self._wait_s - now
        if awaited and left > 0:
            return left
        self._since = None
        return 0.0


_STATISTICS = Path("/proc/thread-self/schedstat")  # ns on a CPU, ns of waiting for one, times on one


def cpu_wait_s() -> float:
    """Returns for how many seconds the thread has been ready to run and has waited for a CPU; 0.0 if nobody tells."""
    try:
        return int(_STATISTICS.read_bytes().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0


class Backoff:
    """How long a worker lets records come together behind a commit: as long as it has waited for a CPU since the last.

    Where more is ready to run than there are CPUs, what a commit costs whatever its records is what all wait for. A
    worker that is never kept waiting does not back off.

    Args:
        waited_s: for how many seconds the thread has waited for a CPU in all.
        most_s: the longest backoff, in seconds.
    """

    def __init__(self, waited_s: Callable[[], float] = cpu_wait_s, *, most_s: float = 0.02):
        self._waited_s, self._most_s = waited_s, most_s
        self._waited, self._until = waited_s(), -math.inf

    def begin(self, now: float) -> None:
        """Begins behind a commit; `now` is of a clock that does not go back, in seconds."""
        before, self._waited = self._waited, self._waited_s()
        self._until = now + min(self._waited - before, self._most_s)

    def left_s(self, now: float) -> float:
        """Returns how many seconds are left of it, 0.0 for none."""
        return max(0.0, self._until - now)


T = TypeVar("T")


class Inbox(Generic[T]):
    """Collects what comes; `take` returns all of it at once.

    `put` waits while values of more bytes than allowed are there, so memory is bounded and the source is held back.
    """

    def __init__(self, bytes_max: int):
        """Makes an inbox whose values have at most `bytes_max` bytes, or are one value."""
        self._bytes_max = bytes_max
        self._changed = threading.Condition()
        self._values: list[T] = []
        self._messages: list[Any] = []
        self._bytes = 0
        self._ended = self._end_taken = self._closed = False
        self._failure: Exception | None = None

    def put(self, value: T, size: int) -> None:
        """Adds a value of `size` bytes; waits while there is no room. It is dropped when nobody takes any more."""
        with self._changed:
            self._changed.wait_for(lambda: not self._values or self._bytes + size <= self._bytes_max or self._closed)
            if not self._closed:
                self._values.append(value)
                self._bytes += size
                self._changed.notify_all()

    def tell(self, message: Any) -> None:
        """Adds a message."""
        with self._changed:
            self._messages.append(message)
            self._changed.notify_all()

    def end(self) -> None:
        """Says that no value will come."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def fail(self, error: Exception) -> None:
        """Lets `take` raise an error, the first one if there are more; what came before it is not handed out."""
        with self._changed:
            self._failure = self._failure or error
            self._changed.notify_all()

    def close(self) -> None:
        """Says that nobody will take any more: whoever waits in `put` goes on."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def take(self, timeout_s: float | None = None) -> tuple[list[Any], list[T], bool]:
        """Waits until there is something and returns (messages, values, whether this is the end of the values).

        Args:
            timeout_s: waits no longer than this; 0 looks only.
        """
        with self._changed:
            self._changed.wait_for(self._something, timeout_s)
            if self._failure is not None:
                raise self._failure
            messages, self._messages = self._messages, []
            values, self._values = self._values, []
            self._bytes, self._end_taken = 0, self._ended
            self._changed.notify_all()
            return messages, values, self._ended

    def _something(self) -> bool:
        ended = self._ended and not self._end_taken
        return bool(self._values or self._messages or ended or self._failure is not None)


class AtMost:
    """Calls a function when it is called itself, unless it did so, or was made, less than `seconds` ago."""

    def __init__(self, act: Callable[[], object], seconds: float):
        self._act, self._seconds = act, seconds
        self._next = time.monotonic() + seconds

    def __call__(self) -> None:
        """Calls the function, or does nothing."""
        if (now := time.monotonic()) >= self._next:
            self._next = now + self._seconds
            self._act()
