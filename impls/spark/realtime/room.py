"""The threads of a session, which the real-time queries that run in it share."""

import threading
from collections.abc import Callable
from typing import ClassVar

from impls.errors import UsageError
from impls.protocol.session import Hello


class Room:
    """Says how many workers a query can run, as the session runs all tasks of all its real-time queries at once.

    Besides workers these are a router for each input partition. A query keeps the threads of the most workers that it
    was allowed. From any threads.

    Args:
        session: its name; rooms of one session know each other until `close`.
        threads: of the session, None where that is not known.
        slots: workers that run at least.
        counted: adds to a router's Hello how many routers there are.
    """

    _lock = threading.Lock()
    _rooms: ClassVar[list["Room"]] = []  # of all sessions

    def __init__(self, session: str, threads: int | None, slots: int, counted: Callable[[Hello], Hello]):
        self._session, self._threads, self._slots, self._counted = session, threads, slots, counted
        self._wanted = slots  # most that was commanded
        self._routers = 1  # as long as none has come
        with self._lock:
            self._rooms.append(self)

    def counted(self, hello: Hello) -> Hello:
        """Takes in a router's Hello, and returns it with the number of routers."""
        found = self._counted(hello)
        if found.role == "router":
            self._routers = found.of
        return found

    def check(self, workers: int) -> None:
        """Takes the threads of so many workers; raises UsageError for more than can run, which would wait for ever."""
        with self._lock:
            others = [room for room in self._rooms if room._session == self._session and room is not self]
            taken = sum(room._routers + room._wanted for room in others)
            if self._threads is not None and workers > max(self._slots, self._threads - self._routers - taken):
                beside = f" and {taken} tasks of other queries" if taken else ""
                raise UsageError(
                    f"A session with {self._threads} threads cannot run {workers} workers beside {self._routers} input "
                    f"partitions{beside}: start it with threads=real_time_threads(partitions, slots), for several "
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
            if self in self._rooms:
                self._rooms.remove(self)
