"""The NEXMark stream against Beam's constants: every share and law measured on a whole stream.

The expected figures are those of Beam's generator (`GeneratorConfig` and the model generators of its nexmark module);
shares that follow from several constants together were measured on its formulas with 2 million events at 10,000/s.
"""

import re
from collections import Counter, defaultdict
from statistics import mean, median

import numpy as np
import pytest
from decoding import decode

from generators.nexmark.profile import make_profile
from generators.nexmark.stream import NexmarkStream
from generators.rates import make_schedule
from generators.stream import Share

RATE, EVENTS, START_US = 10_000, 400_000, 1_700_000_000_000_000
WARM = 20_000  # events until 100 auctions and 400 persons are there


@pytest.fixture(scope="module")
def events():
    return read(EVENTS)


def read(number, rate=RATE, seed=1, **options):
    profile = make_profile(options.pop("profile", "default"), rate, **options)
    stream = NexmarkStream(profile, make_schedule("constant", rate), rate, seed, start_us=START_US, records=number)
    return [decode(v) for block in stream.blocks(Share(0, 1, 1), [0], 4096) for v in block.values]


def of(events, kind, first=0):
    return [(n, e) for n, e in enumerate(events[first:], first) if e["type"] == kind]


def share(flags):
    return mean(map(bool, flags))


def last_person(number):
    return 1000 + number // 50


def last_auction(number):
    return 1000 + number // 50 * 3 + min(max(number % 50 - 1, -1), 2)


@pytest.mark.lengthy
def test_of_fifty_events_one_is_a_person_three_are_auctions_and_the_others_bids(events):
    assert [e["type"] for e in events[:50]] == ["person", *["auction"] * 3, *["bid"] * 46]
    assert {e["type"] for n, e in enumerate(events) if n % 50 == 0} == {"person"}
    assert Counter(e["type"] for e in events) == {"person": EVENTS // 50, "auction": EVENTS // 50 * 3, "bid": 368_000}


@pytest.mark.parametrize("kind", ["person", "auction"])
def test_ids_count_from_1000_without_a_gap(events, kind):
    found = [e["id"] for _, e in of(events, kind)]
    assert found == list(range(1000, 1000 + len(found)))


@pytest.mark.lengthy
def test_every_other_bid_is_for_the_hot_auction(events):
    hot = share(e["auction"] == (last_auction(n) - 1000) // 100 * 100 + 1000 for n, e in of(events, "bid", WARM))
    assert hot == pytest.approx(0.499 + 0.501 / 111, abs=0.006)  # some of the others hit it too


@pytest.mark.lengthy
def test_three_of_four_bids_are_by_the_hot_bidder_who_is_no_hot_seller(events):
    bids = of(events, "bid", WARM)
    assert share(e["bidder"] == (n // 50) // 100 * 100 + 1001 for n, e in bids) == pytest.approx(0.75, abs=0.006)
    sellers = Counter(e["seller"] for _, e in of(events, "auction", WARM))
    hot_sellers = {seller for seller, number in sellers.items() if number > 100}
    bidders = Counter(e["bidder"] for _, e in bids)
    hot_bidders = {bidder for bidder, number in bidders.items() if number > 1000}
    assert {seller % 100 for seller in hot_sellers} == {0}
    assert {bidder % 100 for bidder in hot_bidders} == {1}


def test_three_of_four_auctions_are_by_the_hot_seller(events):
    hot = share(e["seller"] == (n // 50) // 100 * 100 + 1000 for n, e in of(events, "auction", WARM))
    assert hot == pytest.approx(0.75, abs=0.012)


@pytest.mark.lengthy
def test_other_bids_are_for_one_of_the_last_hundred_auctions_or_the_next_ten(events):
    behind = [last_auction(n) - e["auction"] for n, e in of(events, "bid", WARM)]
    assert (min(behind), max(behind)) == (-10, 100)
    counts = Counter(behind)
    ahead = [counts[-lead] for lead in range(1, 11)]  # hot auctions are never ahead
    assert max(ahead) / min(ahead) < 1.2


@pytest.mark.lengthy
def test_other_persons_are_among_the_last_thousand_or_the_next_ten(events):
    named = [last_person(n) - e["bidder"] for n, e in of(events, "bid", 60_000)]
    named += [last_person(n) - e["seller"] for n, e in of(events, "auction", 60_000)]
    assert (min(named), max(named)) == (-10, 999)


@pytest.mark.lengthy
def test_bids_name_auctions_and_bidders_that_are_yet_to_come(events):
    bids = of(events, "bid", WARM)
    assert share(e["auction"] > last_auction(n) for n, e in bids) == pytest.approx(0.045, abs=0.003)
    assert share(e["bidder"] > last_person(n) for n, e in bids) == pytest.approx(0.010, abs=0.003)


@pytest.mark.lengthy
def test_hot_auctions_get_a_hundred_times_the_bids_of_the_others(events):
    bids = Counter(e["auction"] for _, e in of(events, "bid"))
    settled = {a: n for a, n in bids.items() if 2000 <= a < 20_000}
    hot = [number for auction, number in settled.items() if auction % 100 == 0]
    assert mean(hot) == pytest.approx(776, rel=0.1)  # 33.3 epochs of 23 hot bids, and its share of the others
    assert median(settled.values()) == pytest.approx(7.5, abs=1)


@pytest.mark.lengthy
def test_prices_are_even_on_a_logarithmic_scale_of_six_decades(events):
    prices = np.array([e["price"] for _, e in of(events, "bid")])
    assert prices.min() >= 100
    assert prices.max() <= 100_000_000
    decades = np.histogram(np.log10(prices / 100), bins=range(7))[0] / len(prices)
    assert decades == pytest.approx(np.full(6, 1 / 6), abs=0.004)


def test_a_reserve_is_the_initial_bid_and_another_price(events):
    auctions = [e for _, e in of(events, "auction")]
    prices = np.array([[e["initialBid"], e["reserve"] - e["initialBid"]] for e in auctions])
    assert np.log10(prices / 100).mean(axis=0) == pytest.approx([3, 3], abs=0.06)
    assert abs(np.corrcoef(np.log10(prices.T))[0, 1]) < 0.03


@pytest.mark.parametrize(
    ("rate", "mean_ms", "longest_ms"), [(10_000, 167, 333), (1000, 1667, 3334), (50_000, 33.8, 67)]
)
def test_an_auction_lives_until_a_hundred_more_have_opened_on_average(events, rate, mean_ms, longest_ms):
    found = events if rate == RATE else read(60_000, rate)
    lives = [e["expires"] - e["dateTime"] for _, e in of(found, "auction")]
    assert mean(lives) == pytest.approx(mean_ms, rel=0.03)
    assert min(lives) >= 1
    assert 0.97 * longest_ms <= max(lives) <= longest_ms + 1


@pytest.mark.parametrize(("profile", "live"), [("default", 100), ("large-state:auctions=2000", 2000)])
def test_as_many_auctions_are_open_as_the_profile_says(profile, live):
    found = read(60_000, profile=profile)
    auctions = [e for _, e in of(found, "auction")]
    moments = range(START_US // 1000 + 1000, START_US // 1000 + 6000, 50)
    counts = [sum(a["dateTime"] <= at < a["expires"] for a in auctions) for at in moments]
    assert mean(counts) == pytest.approx(live, rel=0.05)


@pytest.mark.lengthy
def test_bids_meet_open_auctions_and_reserves_as_often_as_in_beam(events):
    auctions = {e["id"]: e for _, e in of(events, "auction")}
    bids = [(e, auctions[e["auction"]]) for _, e in of(events, "bid", WARM) if e["auction"] in auctions]
    inside = [a["dateTime"] <= e["dateTime"] <= a["expires"] for e, a in bids]
    wins = [i and e["price"] >= a["reserve"] for i, (e, a) in zip(inside, bids, strict=True)]
    assert share(inside) == pytest.approx(0.716, abs=0.03)  # 120 hot auctions decide it, each by its own life
    assert share(wins) == pytest.approx(0.230, abs=0.03)


def size(event):
    """Bytes of an event as Beam counts them: 8 for a number, 1 for a character, event time in bids only."""
    without = {"type", "scheduled_us", "" if event["type"] == "bid" else "dateTime"}
    return sum(8 if isinstance(v, int) else len(v) for k, v in event.items() if k not in without)


@pytest.mark.lengthy
@pytest.mark.parametrize(("kind", "average", "fixed"), [("person", 200, 0), ("auction", 500, 0), ("bid", 100, 32)])
def test_events_are_padded_to_their_average_size(events, kind, average, fixed):
    sizes = [size(e) for _, e in of(events, kind)]
    assert mean(sizes) == pytest.approx(average, rel=0.01)
    if fixed:
        spread = round((average - fixed) * 0.2)
        assert (min(sizes), max(sizes)) == (average - spread, average + spread - 1)
        lengths = Counter(len(e["extra"]) for _, e in of(events, kind))
        assert max(lengths.values()) / min(lengths.values()) < 1.1


def test_padding_gives_or_takes_a_fifth_of_what_is_missing(events):
    for _, e in of(events, "auction"):
        missing = 500 - 48 - len(e["itemName"]) - len(e["description"])
        assert abs(len(e["extra"]) - missing) <= round(missing * 0.2) + 1


def test_categories_states_cities_and_names_are_beams(events):
    persons, auctions = ([e for _, e in of(events, kind)] for kind in ("person", "auction"))
    for values, number in (
        ([a["category"] for a in auctions], 5),
        ([p["state"] for p in persons], 6),
        ([p["city"] for p in persons], 10),
        ([p["name"].split()[0] for p in persons], 11),
        ([p["name"].split()[1] for p in persons], 9),
    ):
        counts = Counter(values)
        assert len(counts) == number
        assert min(counts.values()) > 0.85 * len(values) / number
    assert {a["category"] for a in auctions} == {10, 11, 12, 13, 14}
    assert {p["state"] for p in persons} == {"AZ", "CA", "ID", "OR", "WA", "WY"}


def test_texts_have_beams_lengths_and_one_special_character_in_thirteen(events):
    texts = defaultdict(list)
    for _, e in of(events, "auction"):
        texts[20].append(e["itemName"])
        texts[100].append(e["description"])
    for limit, found in texts.items():
        assert max(map(len, found)) == limit - 1
        assert all(re.fullmatch("([a-z][a-z ]*[a-z]|[a-z]?)", text) for text in found)
    inner = "".join(text[1:-1] for text in texts[100])
    assert inner.count(" ") / len(inner) == pytest.approx(1 / 13, abs=0.003)
    letters = Counter(inner.replace(" ", ""))
    assert len(letters) == 26
    assert max(letters.values()) / min(letters.values()) < 1.05


def test_cards_and_addresses_look_as_beams_do(events):
    for _, e in of(events, "person"):
        assert re.fullmatch(r"\d{4} \d{4} \d{4} \d{4}", e["creditCard"])
        assert re.fullmatch(r"[a-z ]{0,6}@[a-z ]{0,4}\.com", e["emailAddress"])


@pytest.mark.lengthy
def test_channels_are_those_of_nexmark_nexmark():
    bids = [e for _, e in of(read(100_000, channels=True), "bid")]
    hot = [e for e in bids if not e["channel"].startswith("channel-")]
    assert share(not e["channel"].startswith("channel-") for e in bids) == pytest.approx(0.5, abs=0.006)
    assert {e["channel"] for e in hot} == {"Google", "Facebook", "Baidu", "Apple"}
    assert len({e["url"] for e in hot}) == 4
    url = re.compile(
        r"https://www\.nexmark\.com/[a-z_]{3,4}/[a-z_]{3,4}/[a-z_]{3,4}/item\.htm\?query=1(&channel_id=\d+)?"
    )
    others = {e["channel"]: e["url"] for e in bids if e["channel"].startswith("channel-")}
    assert all(url.fullmatch(e["url"]) for e in bids)
    assert 9_500 < len(others) <= 10_000
    assert share("&channel_id=" in u for u in others.values()) == pytest.approx(0.9, abs=0.01)
    assert {int(name[8:]) for name in others} <= set(range(10_000))


@pytest.mark.lengthy
def test_one_event_in_ten_comes_up_to_three_seconds_late():
    found = read(130_000, out_of_order="delay=3")[30_000:]  # as many come late as stay out
    late = [e["scheduled_us"] // 1000 - e["dateTime"] for e in found]
    assert share(late) == pytest.approx(0.1, abs=0.004)
    assert (min(late), max(late)) == (0, 3000)
    assert mean(ms for ms in late if ms) == pytest.approx(1500, rel=0.03)


def test_a_group_is_scrambled_by_953():
    numbers = [e["id"] for _, e in of(read(5000, out_of_order="group=50,probability=0"), "auction")]
    assert numbers != sorted(numbers)
    assert sorted(numbers) == list(range(1000, 1300))
    first = read(50, out_of_order="group=50,probability=0")
    assert [e["type"] for e in first] == [read(50)[n * 953 % 50]["type"] for n in range(50)]
    assert [e["dateTime"] for e in first] == [read(50)[n * 953 % 50]["dateTime"] for n in range(50)]
