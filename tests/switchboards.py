"""What tests of the driver's switchboard (the fixture `board`) share: its next event, and a thread for a task."""

import threading
from collections.abc import Callable
from typing import Any

from impls.realtime.link import Event, Switchboard

DEADLINE_S = 30.0


def heard(board: Switchboard) -> Event:
    """The next event, which comes before the deadline."""
    event = board.next(DEADLINE_S)
    assert event is not None, "nothing was heard"
    return event


class Running:
    """Calls a function in a thread; behind ended() `result` is what it returned, or `error` what it raised."""

    def __init__(self, act: Callable[[], Any]):
        self.result: Any = None
        self.error: Exception | None = None
        self._thread = threading.Thread(target=self._run, args=(act,), daemon=True)
        self._thread.start()

    def _run(self, act: Callable[[], Any]) -> None:
        try:
            self.result = act()
        except Exception as error:
            self.error = error

    def ended(self) -> bool:
        self._thread.join(DEADLINE_S)
        return not self._thread.is_alive()
