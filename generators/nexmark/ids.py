"""The kind of each event and whom it names: kinds, ids, and the draws of sellers, auctions and bidders.

As in Beam's `PersonGenerator`, `AuctionGenerator` and `BidGenerator`: all follows from the event's id, so no generator
keeps track of what exists. Ids returned by `person_before` and `auction_before` count from 0; the others are those that
stand in an event.
"""

import numpy as np
from numpy.typing import NDArray

from generators.nexmark.profile import Profile
from generators.random64 import draw_unit

__all__ = [
    "AUCTION",
    "AUCTIONS",
    "BID",
    "EPOCH",
    "FIRST_CATEGORY_ID",
    "FIRST_PERSON_ID",
    "PERSON",
    "PERSONS",
    "Fields",
    "auction_id",
    "bid_auction",
    "bid_bidder",
    "kind_of",
    "person_id",
    "pick",
    "seller_of",
]

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
