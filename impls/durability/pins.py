"""Pins: the epochs whose files are kept for readers while a query goes on."""

import itertools
import threading
from dataclasses import dataclass
from typing import Any

from impls.durability.schedule import Manifest
from impls.errors import UsageError
from impls.protocol.arrays import array_of, text_of
from impls.protocol.ended import EndedEpoch

_MOST = 16  # at once: each may keep as many bytes as the checkpoint has at rest


@dataclass(frozen=True, eq=False)
class Pin:
    """What a reader needs to restore bins to the end of an epoch, whatever becomes of the manifest meanwhile.

    Attributes:
        ended: the epoch.
        manifest: the snapshots from which it is restored.
    """

    ended: EndedEpoch
    manifest: Manifest

    @property
    def epochs(self) -> range:
        """The epochs whose changelog is read."""
        return range(int(self.manifest.base.min()) + 1, self.ended.epoch + 1)

    def to_json(self) -> dict[str, Any]:
        """Returns it as JSON values, for another process."""
        ended = self.ended
        location = text_of(ended.location, "<i4")
        at_end = {"epoch": ended.epoch, "location": location, "queued": ended.queued, "now": ended.now}
        return {**at_end, "query": self.manifest.query, "manifest": self.manifest.to_json()}

    @classmethod
    def of_json(cls, data: dict[str, Any]) -> "Pin":
        """Returns what `to_json` has written."""
        ended = EndedEpoch(data["epoch"], array_of(data["location"], "<i4"), data["queued"], data["now"])
        return cls(ended, Manifest.of_json(data["query"], data["manifest"]))


class Pins:
    """The pins that are held, for any thread."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # the collector may let go of a pin while this thread takes in another
        self._numbers = itertools.count()
        self._held: dict[int, Pin] = {}

    def hold(self, pin: Pin) -> int:
        """Takes in a pin and returns the number under which it is let go.

        Raises UsageError where as many are held as may be.
        """
        with self._lock:
            if len(self._held) >= _MOST:
                epochs = ", ".join(str(one.ended.epoch) for one in self._held.values())
                raise UsageError(f"{_MOST} cuts are open, of the epochs {epochs}: close one before the next is made.")
            number = next(self._numbers)
            self._held[number] = pin
            return number

    def release(self, number: int) -> None:
        """Lets go of a pin."""
        with self._lock:
            del self._held[number]

    def held(self) -> list[Pin]:
        """Returns the pins that are held."""
        with self._lock:
            return list(self._held.values())
