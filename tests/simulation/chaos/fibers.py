"""Attempts of tasks in threads of which exactly one runs at a time, and the clock that they look at."""

import threading
from collections.abc import Callable
from random import Random
from typing import Any

_DEADLINE_S = 60.0


class Killed(BaseException):
    """The process that comes to a point is killed there."""


class Fiber:
    """A thread that runs from `resume` to its next `pause`, or to its end.

    Attributes:
        done: it has ended, with `answer` or with `error`.
        killed: it dies at the next point that it comes to.
    """

    def __init__(self, run: Callable[[], Any]):
        self._run = run
        self._go, self._back = threading.Lock(), threading.Lock()
        self._go.acquire()
        self._back.acquire()
        self._thread: threading.Thread | None = None
        self.done = self.killed = False
        self.answer: Any = None
        self.error: BaseException | None = None

    def resume(self) -> None:
        """Lets it run on; returns when it pauses or ends."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._main, daemon=True)
            self._thread.start()
        else:
            self._go.release()
        if not self._back.acquire(timeout=_DEADLINE_S):
            raise TimeoutError(f"an attempt did not come to a point in {_DEADLINE_S:.0f} s")
        if self.done:
            self._thread.join()

    def pause(self) -> None:
        """Hands the baton back, from within; raises Killed when it is not to go on."""
        self._back.release()
        self._go.acquire()
        self.die_if_killed()

    def die_if_killed(self) -> None:
        """Raises Killed in a killed fiber."""
        if self.killed:
            raise Killed

    def kill(self) -> None:
        """Ends it as a killed process ends: nothing is written any more."""
        self.killed = True
        if self._thread is None:
            self.done, self.error = True, Killed()
        while not self.done:
            self.resume()

    def _main(self) -> None:
        try:
            self.answer = self._run()
        except BaseException as error:
            error.__context__ = error.__cause__ = None
            self.error = error.with_traceback(None)  # a dead process holds nothing, neither files nor locks
        self.done = True
        self._back.release()


class Clock:
    """Stands for the module `time`: it moves a microsecond when it is looked at, and by seconds when someone waits."""

    def __init__(self, random: Random, wait: Callable[[], None]):
        self._us, self._random, self._wait = 1_700_000_000_000_000, random, wait

    def time_ns(self) -> int:
        self._us += 1
        return self._us * 1000

    def monotonic(self) -> float:
        return self.time_ns() / 1e9

    perf_counter = monotonic

    def next_look(self) -> float:
        """Returns what the next look at it will give, without moving it."""
        return (self._us + 1) * 1000 / 1e9

    def sleep(self, seconds: float) -> None:
        """Waits: what others do meanwhile takes half a second to three."""
        self._us += int(1e6 * (seconds + self._random.uniform(0.5, 3.0)))
        self._wait()
