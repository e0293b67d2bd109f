"""Which events there are and when: kinds, ids and whom they name; when each happens and when it is sent.

As in Beam's `PersonGenerator`, `AuctionGenerator` and `BidGenerator`: all follows from the event's id, so no generator
keeps track of what exists. Ids returned by `person_before` and `auction_before` count from 0; the others are those that
stand in an event.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from generators.keys import draw_unit
from generators.nexmark.profile import Profile
from generators.rates import Schedule

PERSON = 0
AUCTION = 1
BID = 2
PERSONS, AUCTIONS = 1, 3
EPOCH = 50  # events, the other 46 of them bids
FIRST_PERSON_ID = 1000
_FIRST_AUCTION_ID = 1000
FIRST_CATEGORY_ID = 10
_LEAD = 10  # references go up to this many ids beyond the last one
_HOT_BATCH = 100  # the hot one is the first of a batch of this many ids
_Ids = NDArray[np.int64]


class Fields:
    """Numbers of the random sequences that the fields of an event draw from."""

    HOT_SELLER, SELLER, CATEGORY, INITIAL_BID, RESERVE, LENGTH = 0, 1, 2, 3, 4, 5
    HOT_AUCTION, AUCTION, HOT_BIDDER, BIDDER, PRICE = 10, 11, 12, 13, 14
    FIRST_NAME, LAST_NAME, CITY, STATE, CARD = 20, 21, 22, 23, 24
    DELAYED, DELAY = 30, 31
    EXTRA_LENGTH, HOT_CHANNEL, CHANNEL = 40, 41, 42
    EXTRA, ITEM, DESCRIPTION, USER, HOST = 50, 52, 54, 56, 58  # text: a length and letters, two sequences each
    URL = 60  # by channel, not by event: three texts and whether the url names the channel


def pick(seed: int, field: int, ids: _Ids, choices: int | _Ids) -> _Ids:
    """Returns for each event a number of 0..choices-1, each as likely."""
    return (draw_unit(seed, field, ids) * choices).astype(np.int64)


def kind_of(ids: _Ids) -> _Ids:
    """Returns PERSON, AUCTION or BID for each event id."""
    rest = ids % EPOCH
    return np.where(rest < PERSONS, PERSON, np.where(rest < PERSONS + AUCTIONS, AUCTION, BID))


def _person_before(ids: _Ids) -> _Ids:
    """Returns the last person up to each event; the event's own if it is one."""
    return ids // EPOCH * PERSONS + np.minimum(ids % EPOCH, PERSONS - 1)


def _auction_before(ids: _Ids) -> _Ids:
    """Returns the last auction up to each event; the event's own if it is one; -1 before the first."""
    return ids // EPOCH * AUCTIONS + np.clip(ids % EPOCH - PERSONS, -1, AUCTIONS - 1)


def person_id(ids: _Ids) -> _Ids:
    """Returns the id of the person that each event is."""
    return _person_before(ids) + FIRST_PERSON_ID


def auction_id(ids: _Ids) -> _Ids:
    """Returns the id of the auction that each event is."""
    return _auction_before(ids) + _FIRST_AUCTION_ID


def seller_of(seed: int, profile: Profile, ids: _Ids) -> _Ids:
    """Returns the seller of each auction: 3 of 4 times the first person of the last hundred."""
    hot = pick(seed, Fields.HOT_SELLER, ids, profile.hot_sellers) > 0
    first = _person_before(ids) // _HOT_BATCH * _HOT_BATCH
    return np.where(hot, first, _someone(seed, Fields.SELLER, profile, ids)) + FIRST_PERSON_ID


def bid_auction(seed: int, profile: Profile, ids: _Ids) -> _Ids:
    """Returns the auction of each bid: every other time the first auction of the last hundred."""
    hot = pick(seed, Fields.HOT_AUCTION, ids, profile.hot_auctions) > 0
    last = _auction_before(ids)
    lowest = np.maximum(last - profile.in_flight, 0)
    other = lowest + pick(seed, Fields.AUCTION, ids, last - lowest + 1 + _LEAD)
    return np.where(hot, last // _HOT_BATCH * _HOT_BATCH, other) + _FIRST_AUCTION_ID


def bid_bidder(seed: int, profile: Profile, ids: _Ids) -> _Ids:
    """Returns the bidder of each bid: 3 of 4 times the second person of the last hundred, who is no hot seller."""
    hot = pick(seed, Fields.HOT_BIDDER, ids, profile.hot_bidders) > 0
    second = _person_before(ids) // _HOT_BATCH * _HOT_BATCH + 1
    return np.where(hot, second, _someone(seed, Fields.BIDDER, profile, ids)) + FIRST_PERSON_ID


def _someone(seed: int, field: int, profile: Profile, ids: _Ids) -> _Ids:
    """Returns one of the active persons, or of the next few."""
    persons = _person_before(ids) + 1
    active = np.minimum(persons, profile.active_people)
    return persons - active + pick(seed, field, ids, active + _LEAD)


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
        times = self._undelayed(low, high - low)
        late = draw_unit(self._seed, Fields.DELAYED, times.ids) < self._delayed
        delay_us = (1 + pick(self._seed, Fields.DELAY, times.ids[late], self._delay_ms)) * 1000
        waiting = times[np.flatnonzero(late)]
        waiting = Slots(waiting.ids, waiting.event_us, waiting.send_us + delay_us)
        waiting = waiting[np.argsort(waiting.send_us, kind="stable")]
        punctual = times[np.flatnonzero(~late)]
        places = np.searchsorted(punctual.send_us, waiting.send_us, side="right")
        columns = ((getattr(punctual, name), getattr(waiting, name)) for name in Slots.__annotations__)
        return Slots(*(np.insert(column, places, added) for column, added in columns))
