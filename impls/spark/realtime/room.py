"""The threads of a session, which the real-time queries that run in it share."""

import threading
from collections import defaultdict
from collections.abc import Callable
from typing import ClassVar

from impls.errors import UsageError
from impls.protocol.session import Hello


class Room:
    """How many workers a query can run at once, beside a router for each input partition and the session's other rooms.

    From any threads. All tasks of a query run at once, and a query keeps the slots that it has had.

    Args:
        session: name of the session, by which rooms know each other until `close`.
        threads: of the session, None where that is not known.
        slots: workers that run at least.
        counted: adds to a router's Hello how many routers there are.
    """

    _lock = threading.Lock()
    _rooms: ClassVar[defaultdict[str, list["Room"]]] = defaultdict(list)

    def __init__(self, session: str, threads: int | None, slots: int, counted: Callable[[Hello], Hello]):
        self._session, self._threads, self._slots, self._counted = session, threads, slots, counted
        self._wanted = slots  # most that was commanded
        self._routers = 1  # as long as none has come
        with self._lock:
            self._rooms[session].append(self)

    def counted(self, hello: Hello) -> Hello:
        """Takes in a router's Hello, and returns it with the number of routers."""
        found = self._counted(hello)
        if found.role == "router":
            self._routers = found.of
        return found

    def check(self, workers: int) -> None:
        """Takes the threads of so many workers; raises UsageError for more than can run, which would wait for ever."""
        with self._lock:
            taken = sum(room._routers + room._wanted for room in self._rooms[self._session] if room is not self)
            if self._threads is not None and workers > max(self._slots, self._threads - self._routers - taken):
                others = f" and {taken} tasks of other queries" if taken else ""
                raise UsageError(
                    f"A session with {self._threads} threads cannot run {workers} workers beside {self._routers} input "
                    f"partitions{others}: start it with threads=real_time_threads(partitions, slots), for several "
                    "queries their sum."
                )
            self._wanted = max(self._wanted, workers)

    def take(self, workers: int) -> None:
        """Takes the threads of workers that are there, as in a checkpoint that goes on."""
        with self._lock:
            self._slots = max(self._slots, workers)
            self._wanted = max(self._wanted, workers)

    def close(self) -> None:
        """Gives its threads back."""
        with self._lock:
            if self in (rooms := self._rooms[self._session]):
                rooms.remove(self)
            if not rooms:
                del self._rooms[self._session]
