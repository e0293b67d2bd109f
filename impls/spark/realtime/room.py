"""The threads of a session, which the real-time queries that run in it share."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ClassVar

from impls.errors import UsageError
from impls.protocol.session import Hello


class Room:
    """Says how many workers a query can run, as the session runs all tasks of all its real-time queries at once.

    Besides workers these are a router for each input partition. A query has a thread for each of its slots, and for
    each worker that it may still get. From any threads.

    Attributes:
        wanted: returns the most workers that the query may get by what was asked for last.

    Args:
        session: its name; rooms of one session know each other until `close`.
        threads: of the session, None where that is not known.
        routers: input partitions, as far as they are known before a router has come.
        counted: adds to a router's Hello how many routers there are.
    """

    _lock = threading.Lock()  # whoever has it takes no driver's lock
    _rooms: ClassVar[list["Room"]] = []  # of all sessions

    def __init__(self, session: str, threads: int | None, routers: int, counted: Callable[[Hello], Hello]):
        self._session, self._threads, self._counted = session, threads, counted
        self._slots, self._routers = 0, routers
        self.wanted: Callable[[], int] = lambda: 0
        with self._lock:
            self._rooms.append(self)

    def counted(self, hello: Hello) -> Hello:
        """Takes in a router's Hello, and returns it with the number of routers."""
        found = self._counted(hello)
        if found.role == "router":
            self._routers = found.of
        return found

    def begin(self, slots: int) -> None:
        """Takes the threads of a query's slots; raises UsageError for more than other queries of the session leave.

        Where there is no other one, Spark refuses what it cannot run.
        """
        with self._lock:
            if self._taken():
                self._check(slots)
            self._slots = slots

    def resize(self, slots: int) -> None:
        """Takes in that the query runs with so many slots, for workers that were allowed."""
        self._slots = slots

    @contextmanager
    def allowing(self, workers: int) -> Iterator[None]:
        """Keeps other queries from taking threads while the caller makes so many workers those that are `wanted`.

        Raises:
            UsageError: they are more than can run, and would wait for ever.
        """
        with self._lock:
            if workers > self._slots:
                self._check(workers)
            yield

    def _check(self, workers: int) -> None:
        taken = self._taken()
        if self._threads is not None and workers > self._threads - self._routers - taken:
            beside = f" and {taken} tasks of other queries" if taken else ""
            raise UsageError(
                f"A session with {self._threads} threads cannot run {workers} workers beside {self._routers} input "
                f"partitions{beside}: start it with threads=real_time_threads(partitions, slots), for several "
                "queries their sum."
            )

    def _taken(self) -> int:
        others = [room for room in self._rooms if room._session == self._session and room is not self]
        return sum(room._routers + max(room._slots, room.wanted()) for room in others)

    def close(self) -> None:
        """Gives its threads back."""
        with self._lock:
            if self in self._rooms:
                self._rooms.remove(self)
