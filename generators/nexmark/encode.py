"""Events as JSON, assembled by column: each field of all events of a kind at once, then joined by pyarrow.

A field is text of its own column, so no loop in Python sees an event before it is a finished value.

Channel and url of a bid, which only nexmark/nexmark has (queries 21 and 22 there), are an option, off by default.
"""

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from generators.keys import draw, draw_unit
from generators.nexmark.order import (
    AUCTION,
    BID,
    FIRST_CATEGORY_ID,
    PERSON,
    EventSchedule,
    Fields,
    Slots,
    auction_id,
    bid_auction,
    bid_bidder,
    kind_of,
    person_id,
    pick,
    seller_of,
)
from generators.nexmark.profile import Profile

_WORDS = 128  # random numbers of one event's text: 1,024 letters, or 512 characters of a phrase
_LENGTH_MIN = 3
_LETTERS = (np.arange(256) * 26 // 256 + ord("a")).astype(np.uint8)  # uneven by 1 part in 256
_CODES = np.arange(1 << 16)
_CODES_OF_MARK = (1 << 16) // 13
_HOT = ("Google", "Facebook", "Baidu", "Apple")
_NAMED = 10_000
_HOT_RATIO = 2
_BARE_RATIO = 10  # 1 url of this many does not name its channel


def _phrase_table(mark: str) -> NDArray[np.uint8]:
    """Returns a character for each 16 bits: the mark in 1 of 13, a letter otherwise."""
    letters = (_CODES - _CODES_OF_MARK) * 26 // ((1 << 16) - _CODES_OF_MARK) + ord("a")
    return np.where(_CODES < _CODES_OF_MARK, ord(mark), letters).astype(np.uint8)


_TABLES = {" ": _phrase_table(" "), "_": _phrase_table("_")}


def exact(seed: int, field: int, ids: NDArray[np.int64], lengths: NDArray[np.int64]) -> pa.Array:
    """Returns text of a to z of the lengths given."""
    return _cut(_LETTERS, np.dtype(np.uint8), seed, field, ids=ids, lengths=lengths)


def _phrase(seed: int, field: int, ids: NDArray[np.int64], limit: int, mark: str = " ") -> pa.Array:
    """Returns text of 3 to limit-1 characters of which 1 in 13 is the mark; spaces at the ends are cut off."""
    lengths = _LENGTH_MIN + pick(seed, field, ids, limit - _LENGTH_MIN)
    text = _cut(_TABLES[mark], np.dtype("<u2"), seed, field + 1, ids=ids, lengths=lengths)
    return pc.ascii_trim(text.cast(pa.string()), characters=" ").cast(pa.binary()) if mark == " " else text


def extra(
    seed: int, fields: tuple[int, int], ids: NDArray[np.int64], sizes: NDArray[np.int64] | int, average: int
) -> pa.Array:
    """Returns padding that brings events of these sizes to the average, give or take a fifth of what is missing.

    The first of the fields is that of the letters, the second that of the length.
    """
    missing = np.broadcast_to(np.maximum(average - sizes, 0), ids.shape)
    spread = np.floor(missing * 0.2 + 0.5).astype(np.int64)
    return exact(seed, fields[0], ids, missing - spread + pick(seed, fields[1], ids, 2 * spread))


def _cut(
    table: NDArray[np.uint8],
    code: np.dtype[Any],
    seed: int,
    field: int,
    *,
    ids: NDArray[np.int64],
    lengths: NDArray[np.int64],
) -> pa.Array:
    """Returns text whose characters are looked up by consecutive codes of an event's random numbers."""
    width = int(lengths.max(initial=0))
    words = -(-width * code.itemsize // 8)
    places = ids[:, None] * _WORDS + np.arange(words)
    codes = draw(seed, field, places).astype("<u8").view(code)[:, :width]
    data = table[codes][np.arange(width) < lengths[:, None]]
    offsets = np.zeros(len(ids) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return pa.Array.from_buffers(pa.binary(), len(ids), [None, pa.py_buffer(offsets), pa.py_buffer(data)])


class Channels:
    """Half of the bids come through one of 4 hot channels, the others through one of 10,000.

    A channel has one url for ever. Its number is the absolute value of its index with the 32 bits reversed, as in Java.
    """

    def __init__(self, seed: int):
        self._seed = seed
        number = np.arange(len(_HOT) + _NAMED, dtype=np.int64)
        folders = [_phrase(seed, field, number, 5, "_").to_pylist() for field in range(Fields.URL, Fields.URL + 6, 2)]
        bare = pick(seed, Fields.URL + 6, number, _BARE_RATIO) == 0
        fragments = []
        for i, place in enumerate(zip(*folders, strict=True)):
            index = i - len(_HOT)
            name = _HOT[i] if index < 0 else f"channel-{index}"
            url = f"https://www.nexmark.com/{b'/'.join(place).decode()}/item.htm?query=1"
            url += "" if index < 0 or bare[i] else f"&channel_id={_reversed_bits(index)}"
            fragments.append(f',"channel":"{name}","url":"{url}"'.encode())
        self._fragments = pa.array(fragments, pa.binary())

    def of(self, ids: NDArray[np.int64]) -> pa.Array:
        """Returns both fields of each bid, with a comma before them."""
        hot = pick(self._seed, Fields.HOT_CHANNEL, ids, _HOT_RATIO) > 0
        channel = np.where(
            hot,
            pick(self._seed, Fields.CHANNEL, ids, len(_HOT)),
            len(_HOT) + pick(self._seed, Fields.CHANNEL, ids, _NAMED),
        )
        return self._fragments.take(pa.array(channel))


def _reversed_bits(index: int) -> int:
    """Returns the absolute value of a 32-bit integer with its bits reversed.

    >>> [_reversed_bits(index) for index in range(4)]
    [0, 2147483648, 1073741824, 1073741824]
    """
    unsigned = int(f"{index:032b}"[::-1], 2)
    return abs(unsigned - (1 << 32)) if unsigned >> 31 else unsigned


_CATEGORIES = 5
_PADDING = (Fields.EXTRA, Fields.EXTRA_LENGTH)
_STATES = ["AZ", "CA", "ID", "OR", "WA", "WY"]
_CITIES = [
    "Phoenix",
    "Los Angeles",
    "San Francisco",
    "Boise",
    "Portland",
    "Bend",
    "Redmond",
    "Seattle",
    "Kent",
    "Cheyenne",
]
_FIRST_NAMES = ["Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter"]
_LAST_NAMES = ["Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris"]
_NAMES = [f"{first} {last}" for first in _FIRST_NAMES for last in _LAST_NAMES]
_CARDS = [f"{number:04d}" for number in range(10_000)]
_Ints = NDArray[np.int64]


def price(seed: int, field: int, ids: _Ints) -> _Ints:
    """Returns prices in cents: 100 times 10 to the power of an even number of [0, 6), rounded half up.

    Processors' power functions may differ in the last digit, which hardly ever moves a rounded price.
    """
    return np.floor(np.power(10.0, draw_unit(seed, field, ids) * 6.0) * 100.0 + 0.5).astype(np.int64)


def _length_ms(seed: int, ids: _Ints, horizon_ms: _Ints) -> _Ints:
    """Returns how long auctions stay open: 1 ms and up to twice the horizon."""
    return 1 + pick(seed, Fields.LENGTH, ids, np.maximum(2 * horizon_ms, 1))


class Encoder:
    """values(slots, scheduled) makes the JSON of events; event time is in ms, scheduled time in microseconds."""

    def __init__(self, profile: Profile, clock: EventSchedule, seed: int, event_start_us: int):
        self._profile, self._clock, self._seed, self._start_us = profile, clock, seed, event_start_us
        self._channels = Channels(seed) if profile.channels else None
        self._horizon = profile.in_flight * 50 // 3  # events until as many auctions have been opened
        self._names, self._cities, self._states, self._cards = (
            pa.array(words, pa.binary()) for words in (_NAMES, _CITIES, _STATES, _CARDS)
        )

    def values(self, slots: Slots, scheduled_us: _Ints) -> list[bytes]:
        """Returns the record value of each event."""
        kinds, out = kind_of(slots.ids), np.empty(len(slots.ids), object)
        for kind, make in ((PERSON, self._persons), (AUCTION, self._auctions), (BID, self._bids)):
            chosen = np.flatnonzero(kinds == kind)
            if len(chosen):
                ids, times = slots.ids[chosen], self.event_ms(slots.event_us[chosen])
                out[chosen] = _split(make(ids, times, _text(times), _text(scheduled_us[chosen])))
        values: list[bytes] = out.tolist()
        return values

    def event_ms(self, event_us: _Ints) -> _Ints:
        """Returns event times in ms since the Unix epoch."""
        return (event_us + self._start_us) // 1000

    def expires_ms(self, ids: _Ints, times_ms: _Ints) -> _Ints:
        """Returns when auctions that open at these times close."""
        horizon = self.event_ms(self._clock.at(ids + self._horizon)) - times_ms
        return times_ms + _length_ms(self._seed, ids, horizon)

    def _persons(self, ids: _Ints, _times: _Ints, time: pa.Array, scheduled: pa.Array) -> pa.Array:
        seed, at, card = self._seed, Fields, pick(self._seed, Fields.CARD, ids, 10**16)
        first, last = (pick(seed, field, ids, n) for field, n in ((at.FIRST_NAME, 11), (at.LAST_NAME, 9)))
        name = self._names.take(pa.array(first * len(_LAST_NAMES) + last))
        email = _join(_phrase(seed, at.USER, ids, 7), "@", _phrase(seed, at.HOST, ids, 5), ".com")
        cards = [self._cards.take(pa.array(card // 10**digits % 10**4)) for digits in (12, 8, 4, 0)]
        city = self._cities.take(pa.array(pick(seed, at.CITY, ids, len(_CITIES))))
        state = self._states.take(pa.array(pick(seed, at.STATE, ids, len(_STATES))))
        size = 8 + 19 + sum(_sizes(column) for column in (name, email, city, state))
        padding = extra(seed, _PADDING, ids, size, self._profile.person_bytes)
        return _join(
            '{"type":"person","id":', _text(person_id(ids)), ',"name":"', name, '","emailAddress":"', email,
            '","creditCard":"', cards[0], " ", cards[1], " ", cards[2], " ", cards[3], '","city":"', city,
            '","state":"', state, '","dateTime":', time, ',"scheduled_us":', scheduled, ',"extra":"', padding, '"}',
        )  # fmt: skip

    def _auctions(self, ids: _Ints, times: _Ints, time: pa.Array, scheduled: pa.Array) -> pa.Array:
        seed, at = self._seed, Fields
        item, description = _phrase(seed, at.ITEM, ids, 20), _phrase(seed, at.DESCRIPTION, ids, 100)
        lowest = price(seed, at.INITIAL_BID, ids)
        reserve = lowest + price(seed, at.RESERVE, ids)
        category = FIRST_CATEGORY_ID + pick(seed, at.CATEGORY, ids, _CATEGORIES)
        size = 6 * 8 + _sizes(item) + _sizes(description)
        padding = extra(seed, _PADDING, ids, size, self._profile.auction_bytes)
        return _join(
            '{"type":"auction","id":', _text(auction_id(ids)), ',"itemName":"', item, '","description":"', description,
            '","initialBid":', _text(lowest), ',"reserve":', _text(reserve), ',"dateTime":', time,
            ',"expires":', _text(self.expires_ms(ids, times)), ',"seller":', _text(seller_of(seed, self._profile, ids)),
            ',"category":', _text(category), ',"scheduled_us":', scheduled, ',"extra":"', padding, '"}',
        )  # fmt: skip

    def _bids(self, ids: _Ints, _times: _Ints, time: pa.Array, scheduled: pa.Array) -> pa.Array:
        seed, at, profile = self._seed, Fields, self._profile
        padding = extra(seed, _PADDING, ids, 4 * 8, profile.bid_bytes)
        return _join(
            '{"type":"bid","auction":', _text(bid_auction(seed, profile, ids)),
            ',"bidder":', _text(bid_bidder(seed, profile, ids)), ',"price":', _text(price(seed, at.PRICE, ids)),
            *([self._channels.of(ids)] if self._channels else []),
            ',"dateTime":', time, ',"scheduled_us":', scheduled, ',"extra":"', padding, '"}',
        )  # fmt: skip


def _text(numbers: _Ints) -> pa.Array:
    return pa.array(numbers).cast(pa.string()).cast(pa.binary())


def _sizes(column: pa.Array) -> _Ints:
    sizes: _Ints = pc.binary_length(column).to_numpy().astype(np.int64)
    return sizes


def _join(*parts: str | pa.Array) -> pa.Array:
    columns = [pa.scalar(part.encode(), pa.binary()) if isinstance(part, str) else part for part in parts]
    return pc.binary_join_element_wise(*columns, pa.scalar(b"", pa.binary()))


def _split(column: pa.Array) -> list[bytes]:
    """Returns the values of a column; many times faster than `to_pylist`."""
    _, offsets, data = column.buffers()
    edges = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1].tolist()
    whole = data.to_pybytes()
    return [whole[low:high] for low, high in pairwise(edges)]
