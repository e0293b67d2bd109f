"""An event that the handler of a signal may set."""

import signal
import threading
from contextlib import suppress
from queue import Empty, SimpleQueue


class Stop(threading.Event):
    """Set once, by threads or by the handler of a signal.

    Python runs a handler in the main thread between any two steps. Within `Event.wait` that thread may hold the lock
    that `Event.set` waits for, and the process hangs. `SimpleQueue.put` may be called there.
    """

    def __init__(self) -> None:
        super().__init__()
        self._is_set, self._wakes = False, SimpleQueue[None]()

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
        self._wakes.put(None)

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until it is set, or for `timeout` seconds, and returns whether it is."""
        if not self._is_set:
            with suppress(Empty):
                self._wakes.put(self._wakes.get(timeout=timeout))  # for the next one who waits
        return self._is_set
