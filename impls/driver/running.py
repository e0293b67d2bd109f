"""What every query that a supervisor thread runs offers: waiting for its end, and its failure."""

import contextlib
import threading
from abc import ABC, abstractmethod
from typing import Self

__all__ = ["RunningQuery"]


class RunningQuery(ABC):
    """What every query that a supervisor thread runs offers: waiting for its end, and its failure."""

    def __init__(self) -> None:
        self._ended = threading.Event()
        self._failure: Exception | None = None

    @abstractmethod
    def stop(self) -> None:
        """Ends the query; raises what it failed with, if it did."""

    def await_end(self, timeout_s: float | None = None) -> bool:
        """Waits until the query has ended and returns whether it has; raises what it failed with."""
        ended = self._ended.wait(timeout_s)
        if ended and self._failure is not None:
            raise self._failure
        return ended

    def ended(self, timeout_s: float) -> bool:
        """Waits until the query has ended for any reason, and returns whether it has ended."""
        return self._ended.wait(timeout_s)

    @property
    def failed(self) -> Exception | None:
        """What the query failed with, None while it runs or when it ended as asked."""
        return self._failure

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with contextlib.nullcontext() if kind is None else contextlib.suppress(Exception):
            self.stop()  # after an error that error is the one to see
