"""How a child process notices that it is to end: its standard input speaks or ends, or a signal comes."""

import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from generators.spec import GeneratorError

_WORD_DEADLINE_S = 120.0  # a parent that runs looks twenty times a second
_POLL_S = 0.02


def watch_stdin(on_end: Callable[[], object], on_words: Callable[[bytes], object] | None = None) -> None:
    """Starts a thread that calls `on_end` once standard input ends, and `on_words` with whatever comes."""

    def watch() -> None:
        while said := os.read(0, 4096):  # unbuffered: a thread inside sys.stdin would crash the interpreter's shutdown
            if on_words is not None:
                on_words(said)
        on_end()

    threading.Thread(target=watch, name="stdin", daemon=True).start()


class Steering:
    """take(what was said) on a thread; starts_us() waits before the first record, goes_on(sent) behind the last one.

    The line `start US` says when the stream starts, the line `records N` that it goes on up to its record N, and the
    line `end` that it does not go on.
    """

    def __init__(self, stop: threading.Event, *, extendable: bool):
        self._stop, self._ended = stop, not extendable
        self._start_us, self._records, self._left = 0, 0, b""

    def take(self, said: bytes) -> None:
        """Takes in the lines that are whole; one that it does not know changes nothing."""
        *lines, self._left = (self._left + said).split(b"\n")
        for line in lines:
            word, _, number = line.partition(b" ")
            if word == b"start" and number.isdigit():
                self._start_us = int(number)
            elif word == b"records" and number.isdigit():
                self._records = max(self._records, int(number))
            elif word == b"end":
                self._ended = True

    def starts_us(self) -> int:
        """Waits until it is known when the stream starts, in µs since 1970; 0 when it is stopped before.

        Raises GeneratorError when nobody says so within two minutes.
        """
        self._wait(lambda: self._start_us > 0, "when to start")
        return self._start_us

    def goes_on(self, sent: int) -> int | None:
        """Waits until it is known whether there are records behind the `sent` first ones.

        Returns:
            How many records the stream has then; None if it does not go on.

        Raises:
            GeneratorError: nobody says so within two minutes.
        """
        self._wait(lambda: self._records > sent or self._ended, f"whether to go on after {sent} records")
        return None if self._records <= sent or self._stop.is_set() else self._records

    def _wait(self, known: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + _WORD_DEADLINE_S
        while not known() and not self._stop.is_set():
            if time.monotonic() > end:
                raise GeneratorError(f"Nobody said within {_WORD_DEADLINE_S:g} s {what}.")
            time.sleep(_POLL_S)


class Stop(threading.Event):
    """Set once, by threads or by the handler of a signal.

    Python runs a handler in the main thread between any two steps. Within `Event.wait` that thread may hold the lock
    that `Event.set` waits for, and the process hangs. So `set` takes no lock: it releases the one that `wait` takes.
    """

    def __init__(self) -> None:
        super().__init__()
        self._is_set, self._holds = False, threading.Lock()
        self._holds.acquire()

    @classmethod
    def on_signals(cls) -> "Stop":
        """Returns one that SIGTERM and SIGINT set; to be called in the main thread."""
        stop = cls()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
        return stop

    def is_set(self) -> bool:
        """Returns whether it has been set."""
        return self._is_set

    def set(self) -> None:
        """Ends every wait, also those that begin later."""
        self._is_set = True
        self._let_go()

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until it is set, or for `timeout` seconds, and returns whether it is."""
        if not self._is_set:
            waits_s = -1 if timeout is None else max(timeout, 0)
            if self._holds.acquire(timeout=waits_s):
                self._let_go()  # for the next one who waits
        return self._is_set

    def _let_go(self) -> None:
        with suppress(RuntimeError):  # another one has done it
            self._holds.release()
