"""What a server of bins has done, and the calls that it refuses unread."""

import threading
from collections import Counter
from typing import Any

from pyarrow import flight

from impls.transfer.ticket import REASONS


class Counts:
    """What a server has done; all methods may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._refused: Counter[str] = Counter()
        self._numbers: Counter[str] = Counter(served=0, failed=0, looks=0, bytes=0, most=0)

    def refuse(self, reason: str) -> None:
        """Counts a refused call."""
        with self._lock:
            self._refused[reason] += 1

    def add(self, **numbers: int) -> None:
        """Adds to numbers of `now`."""
        with self._lock:
            self._numbers.update(numbers)

    def streams(self, number: int) -> None:
        """Takes in how many streams there are."""
        with self._lock:
            self._numbers["most"] = max(self._numbers["most"], number)

    def now(self) -> dict[str, Any]:
        """Returns streams served and failed, looks at keys, bytes, most streams at once, refused calls by reason."""
        with self._lock:
            return {**self._numbers, "refused": dict(sorted(self._refused.items()))}


class OnlyGet(flight.ServerMiddlewareFactory):  # type: ignore[misc]  # pyarrow has no types
    """Refuses every call that is not a do_get, before anything of it is read."""

    def __init__(self, counts: Counts):
        self._counts = counts

    def start_call(self, info: flight.CallInfo, _headers: dict[str, list[str]]) -> None:
        """Raises FlightUnauthorizedError for another call; see `flight.ServerMiddlewareFactory`."""
        if info.method != flight.FlightMethod.DO_GET:
            self._counts.refuse("method")
            raise flight.FlightUnauthorizedError(REASONS["method"], b"method")
