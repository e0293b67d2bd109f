"""What a NEXMark stream is made of: Beam's constants, and the options that a profile sets."""

import math
from dataclasses import dataclass, replace

from generators.spec import GeneratorError, options_of, split_choice

PROFILES = ("default", "large-state")
MEGAPHONE_HORIZON_S = 43_200  # 12 h: 2,592 auctions in flight for each event per second
_AUCTIONS_MAX = 100_000_000
_HORIZON_S = 1_200.0
_GROUP_MAX = 1_000_000
_DELAY_MAX_S = 600.0


@dataclass(frozen=True)
class Profile:
    """The options of a stream; the defaults are Beam's (`NexmarkConfiguration`).

    Attributes:
        in_flight: auctions that are open at a time, on average.
        preload: whether the auctions then open, and the persons of that time, come before the clock starts.
        active_people: number of persons from which sellers and bidders are drawn.
        hot_auctions, hot_sellers, hot_bidders: 1 of this many references is not to the hot one.
        person_bytes, auction_bytes, bid_bytes: average sizes, counted as Beam does: 8 for a number, 1 for a character.
        group: events of this many neighbours come in a scrambled order; 1 for in order.
        delayed: share of the events that are sent late.
        delay_ms: longest delay of these.
        channels: bids carry channel and url.
    """

    in_flight: int = 100
    preload: bool = False
    active_people: int = 1000
    hot_auctions: int = 2
    hot_sellers: int = 4
    hot_bidders: int = 4
    person_bytes: int = 200
    auction_bytes: int = 500
    bid_bytes: int = 100
    group: int = 1
    delayed: float = 0.0
    delay_ms: int = 3000
    channels: bool = False


def make_profile(text: str, rate: int, *, out_of_order: str = "", channels: bool = False) -> Profile:
    """Returns a profile for a base rate in events per second.

    - default: 100 auctions in flight at any rate, and an empty state at the start.
    - large-state:horizon=SECONDS: as many as are opened in that time (1,200 s: 72 for each event per second; Megaphone
      has 43,200 s and 2,592), with a preload. large-state:auctions=N gives the number itself.

    `out_of_order` is group=N,probability=P,delay=SECONDS (1, 0.1 and 3 unless given); "" is in order.

    Raises:
        GeneratorError: unknown profile or option, or a value out of range.
    """
    name, rest = split_choice(text)
    if name not in PROFILES:
        raise GeneratorError(f"The profile {name!r} is unknown: use one of {', '.join(PROFILES)}.")
    profile = Profile(channels=channels)
    if name == "default":
        options_of(rest, {}, "the profile 'default'")
    else:
        profile = replace(profile, in_flight=_in_flight(rest, rate), preload=True)
    return _disordered(profile, out_of_order) if out_of_order else profile


def _in_flight(text: str, rate: int) -> int:
    given = options_of(text, {"horizon": _HORIZON_S, "auctions": 0.0}, "the profile 'large-state'")
    auctions = given["auctions"] or math.floor(given["horizon"] * rate * 3 / 50)
    if not 1 <= auctions <= _AUCTIONS_MAX:
        raise GeneratorError(
            f"The auctions in flight must be from 1 to {_AUCTIONS_MAX}, not {auctions:g}: change horizon or auctions."
        )
    return int(auctions)


def _disordered(profile: Profile, text: str) -> Profile:
    options = options_of(text, {"group": 1, "probability": 0.1, "delay": 3.0}, "the order of events")
    group = int(options["group"])
    if group != options["group"] or not 1 <= group <= _GROUP_MAX or (group > 1 and group % 953 == 0):
        raise GeneratorError(
            f"The group is a whole number from 1 to {_GROUP_MAX} that 953 does not divide, not {options['group']:g}."
        )
    if not 0 <= options["probability"] < 1:
        raise GeneratorError(f"The probability of a delay must be from 0 to below 1, not {options['probability']:g}.")
    if not 0.001 <= options["delay"] <= _DELAY_MAX_S:
        raise GeneratorError(f"The delay must be from 0.001 to {_DELAY_MAX_S:g} seconds, not {options['delay']:g}.")
    return replace(profile, group=group, delayed=options["probability"], delay_ms=round(options["delay"] * 1000))
