"""The NEXMark stream as the producer sends it: the preload, then events 0, 1, 2, ... behind it at the schedule."""

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from generators.nexmark.encode import Encoder
from generators.nexmark.order import AUCTIONS, EPOCH, PERSONS, EventSchedule, Order, Slots
from generators.nexmark.profile import Profile
from generators.rates import Schedule
from generators.stream import RecordStream

_SCAN = 1 << 16  # epochs looked through at a time


class NexmarkStream(RecordStream):
    """The first `records` events behind the preload; `first` is the id of the first of them.

    Event time is the schedule's, counted from `event_start_us`; without one that is `start_us`, so that an event
    happens when it is due (a delayed one before that). The two differ when the preload is sent before the start is
    known.

    The preload, if the profile has one, stands for the events with ids below `first`, which happened before the start
    at the constant base rate: all persons, and of the auctions those that are still open at the start, so their number
    is about `in_flight`. Closed auctions and the bids would leave no state and are left out. Scheduled times of the
    preload are its event times, which lie before the start.
    """

    def __init__(
        self,
        profile: Profile,
        schedule: Schedule,
        rate: int,
        seed: int,
        *,
        start_us: int,
        records: int,
        event_start_us: int | None = None,
    ):
        super().__init__(start_us, records)
        lives = 2 * (profile.in_flight * EPOCH // AUCTIONS)  # in events: no auction stays open for longer
        self.first = -(-lives // EPOCH) * EPOCH if profile.preload else 0
        self.event_start_us = start_us if event_start_us is None else event_start_us
        self._clock = EventSchedule(schedule, rate, self.first)
        self._order = Order(schedule, self.first, profile, seed)
        self._encoder = Encoder(profile, self._clock, seed, self.event_start_us)
        self.preload = len(self._before)

    @cached_property
    def _before(self) -> NDArray[np.int64]:
        """Returns the ids of the preload's events."""
        epochs = self.first // EPOCH
        parts = [self._left_of(low, min(low + _SCAN, epochs)) for low in range(0, epochs, _SCAN)]
        return np.concatenate([np.empty(0, np.int64), *parts])

    def _left_of(self, low: int, high: int) -> NDArray[np.int64]:
        """Returns the ids, of epochs low..high-1, of what still counts at the start."""
        begins = np.arange(low, high, dtype=np.int64)[:, None] * EPOCH
        persons = (begins + np.arange(PERSONS)).reshape(-1)
        auctions = (begins + PERSONS + np.arange(AUCTIONS)).reshape(-1)
        times = self._encoder.event_ms(self._clock.at(auctions))
        is_open = self._encoder.expires_ms(auctions, times) > self._encoder.event_ms(np.zeros(1, np.int64))
        return np.sort(np.concatenate((persons, auctions[is_open])))

    def _make(self, low: int, count: int, chosen: NDArray[np.int64]) -> tuple[list[bytes], NDArray[np.int64]]:
        inside = max(0, min(count, self.preload - low))  # records of the preload
        ids = self._before[low : low + inside][chosen[chosen < inside]]
        before = self._clock.at(ids)
        after = self._order.slots(max(0, low - self.preload), count - inside)[chosen[chosen >= inside] - inside]
        slots = Slots(
            np.concatenate((ids, after.ids)),
            np.concatenate((before, after.event_us)),
            np.concatenate((before, after.send_us)),
        )
        times = np.concatenate((before + self.event_start_us, after.send_us + self.start_us))
        return self._encoder.values(slots, times), times

    def _scheduled_until(self, offset_us: int) -> int:
        return self._order.records_until(offset_us)
