"""When each event happens and when it is sent: event ids against the schedule, in order or with stated disorder."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from generators.nexmark.ids import Fields, pick
from generators.nexmark.profile import Profile
from generators.random64 import draw_unit
from generators.rates import Schedule

__all__ = ["EventSchedule", "Order", "Slots"]

_SECOND_US = 1_000_000
_STRIDE = 953  # as in Beam's `GeneratorConfig.nextAdjustedEventNumber`
_CHUNK = 1 << 16
_Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Slots:
    """Consecutive places of a stream: the event in each, and its times in microseconds after the start."""

    ids: _Ints
    event_us: _Ints
    send_us: _Ints

    def __getitem__(self, part: slice | _Ints) -> "Slots":
        return Slots(self.ids[part], self.event_us[part], self.send_us[part])


class EventSchedule:
    """Event `first` happens when the schedule's record 0 is due, the next with record 1, and so on.

    The events before it, if any, happened before the start, at the constant base rate.
    """

    def __init__(self, schedule: Schedule, rate: int, first: int):
        self.schedule, self.rate, self.first = schedule, rate, first

    def at(self, ids: _Ints) -> _Ints:
        """Returns when events happen, in microseconds after the start; the ids should be close to each other."""
        numbers = ids - self.first
        later = numbers >= 0
        out = numbers * _SECOND_US // self.rate
        if later.any():
            low, high = int(numbers[later].min()), int(numbers[later].max())
            out[later] = self.schedule.times_us(low, high - low + 1)[numbers[later] - low]
        return out


class Order:
    """slots(low, count) gives the events sent in places low..low+count-1, from the schedule's record 0 on.

    Two kinds of disorder, both functions of the event id. *Group*: within each group of neighbours place n has the
    event n * 953 modulo the group's size, with that event's time (Beam's `outOfOrderGroupSize`). *Delay*: an event is
    sent up to `delay_ms` after its time (Beam's `probDelayedEvent`, `occasionalDelaySec`, there drawn from an unseeded
    generator); the stream is sorted by sending time.

    A place is found without a count of what came before. Of the events whose time is more than the longest delay before
    that of record `low` all have been sent by then, and they are fewer than `low`; so the place of any later event is
    their number plus its rank among the events behind them.
    """

    def __init__(self, schedule: Schedule, first: int, profile: Profile, seed: int):
        self._schedule, self._first, self._seed = schedule, first, seed
        self._group, self._delayed, self._delay_ms = profile.group, profile.delayed, profile.delay_ms
        self._kept: tuple[int, Slots] | None = None

    def slots(self, low: int, count: int) -> Slots:
        """Returns what is sent in places low..low+count-1."""
        if not self._delayed or not count:
            return self._undelayed(low, count)
        chunks = range(low // _CHUNK, -(-(low + count) // _CHUNK))
        parts = [self._chunk(n)[max(0, low - n * _CHUNK) : low + count - n * _CHUNK] for n in chunks]
        if len(parts) == 1:
            return parts[0]
        return Slots(*(np.concatenate([getattr(part, name) for part in parts]) for name in Slots.__annotations__))

    def records_until(self, offset_us: int) -> int:
        """Returns how many places are due at `offset_us` microseconds after the start or before."""
        seen = self._schedule.records_until(offset_us)
        if not self._delayed:
            return seen
        sure = self._schedule.records_until(offset_us - self._delay_ms * 1000)
        return sure + int((self._sorted(sure, seen).send_us <= offset_us).sum())

    def _undelayed(self, low: int, count: int) -> Slots:
        places = np.arange(low, low + count, dtype=np.int64)
        send = self._schedule.times_us(low, count)
        if self._group == 1:
            return Slots(places + self._first, send, send)
        begins = places // self._group * self._group
        events = begins + places % self._group * _STRIDE % self._group
        start = low // self._group * self._group
        times = self._schedule.times_us(start, low + count + self._group - start)
        return Slots(events + self._first, times[events - start], send)

    def _chunk(self, number: int) -> Slots:
        """Returns one chunk of places; the last one asked for is kept."""
        if self._kept is None or self._kept[0] != number:
            low, longest = number * _CHUNK, self._delay_ms * 1000
            first, last = (int(self._schedule.times_us(at, 1)[0]) for at in (low, low + _CHUNK - 1))
            before = self._schedule.records_until(first - longest - 1)
            found = self._sorted(before, self._schedule.records_until(last + longest))
            self._kept = (number, found[low - before : low - before + _CHUNK])
        return self._kept[1]

    def _sorted(self, low: int, high: int) -> Slots:
        """Returns the events whose undelayed place is low..high-1, by sending time; of equal ones the late last."""
        found = self._undelayed(low, high - low)
        late = draw_unit(self._seed, Fields.DELAYED, found.ids) < self._delayed
        delay_us = (1 + pick(self._seed, Fields.DELAY, found.ids[late], self._delay_ms)) * 1000
        waiting = found[np.flatnonzero(late)]
        waiting = Slots(waiting.ids, waiting.event_us, waiting.send_us + delay_us)
        waiting = waiting[np.argsort(waiting.send_us, kind="stable")]
        punctual = found[np.flatnonzero(~late)]
        places = np.searchsorted(punctual.send_us, waiting.send_us, side="right")
        columns = ((getattr(punctual, name), getattr(waiting, name)) for name in Slots.__annotations__)
        return Slots(*(np.insert(column, places, added) for column, added in columns))
