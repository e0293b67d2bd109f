"""How far a producer goes: its parent may say at the planned end that the stream goes on."""

import threading
import time

from generators.errors import GeneratorError

__all__ = ["Steering"]

_WORD_DEADLINE_S = 120.0  # a parent that runs looks twenty times a second
_POLL_S = 0.02


class Steering:
    """take(what was said) on a thread; goes_on(sent) waits at the end of what there is to send.

    The line `records N` says that the stream goes on up to its record N, the line `end` that it does not go on.

    Attributes:
        records: how many records the stream has, as far as it is known.
    """

    def __init__(self, stop: threading.Event, records: int, *, extendable: bool):
        self._stop, self.records, self._ended = stop, records, not extendable
        self._left = b""

    def take(self, said: bytes) -> None:
        """Takes in the lines that are whole; one that it does not know changes nothing."""
        *lines, self._left = (self._left + said).split(b"\n")
        for line in lines:
            word, _, number = line.partition(b" ")
            if word == b"records" and number.isdigit():
                self.records = max(self.records, int(number))
            elif word == b"end":
                self._ended = True

    def goes_on(self, sent: int) -> bool:
        """Waits until it is known whether there are records behind the `sent` first ones, and returns whether.

        Raises:
            GeneratorError: nobody says so within two minutes.
        """
        end = time.monotonic() + _WORD_DEADLINE_S
        while self.records <= sent and not self._ended and not self._stop.is_set():
            if time.monotonic() > end:
                raise GeneratorError(
                    f"Nobody said within {_WORD_DEADLINE_S:g} s whether to go on after {sent} records."
                )
            time.sleep(_POLL_S)
        return self.records > sent and not self._stop.is_set()
