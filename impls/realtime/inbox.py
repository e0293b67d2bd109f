"""What threads of a task hand to its main thread: values with a bound on their bytes, messages without one."""

import threading
from typing import Any, Generic, TypeVar

__all__ = ["Inbox"]

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

    def rest(self, seconds: float) -> None:
        """Waits so long; raises the error that `fail` was given."""
        with self._changed:
            self._changed.wait_for(lambda: self._failure is not None, seconds)
            if self._failure is not None:
                raise self._failure

    def _something(self) -> bool:
        ended = self._ended and not self._end_taken
        return bool(self._values or self._messages or ended or self._failure is not None)
