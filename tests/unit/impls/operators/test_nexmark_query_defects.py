"""Defects of other implementations' queries: the answers each would give, and that the oracle takes none of them.

The queries themselves are tested against right answers in `test_nexmark_answers.py`, and rule by rule in
`test_nexmark_queries.py`; `generators/README.md` has the table of defects.
"""

from collections import defaultdict

import pytest
from auctions import FROM_SCRATCH, auction, bid, closings, ends, of, person, random_events, rounded
from judging import judged, results

from impls.mechanisms.native_spark.nexmark_closing import best_bid, means_of_last
from impls.operators.nexmark import QUERIES
from impls.operators.nexmark.base import AUCTION, BID, PERSON

S = 1_000
BINS = 4


def eleven_rows(events):
    """Flink's framing of query 6: 10 preceding rows and the current one."""
    sold = defaultdict(list)
    for a, price in closings(events):
        sold[a["seller"]].append((a["id"], price))
    return [
        {"seller": seller, "auction": id_, "price": rounded([p for _, p in found[max(0, n - 10) : n + 1]])}
        for seller, found in sold.items() for n, (id_, _) in enumerate(found)
    ]  # fmt: skip


def by_bidder(events):
    """Megaphone's query 6: the last ten auctions that a bidder has won."""
    won = defaultdict(list)
    for a, price in closings(events):
        won[next(b["bidder"] for b in of(events, BID) if (b["auction"], b["price"]) == (a["id"], price))].append(
            (a, price)
        )
    return [
        {"seller": bidder, "auction": a["id"], "price": rounded([p for _, p in found[max(0, n - 9) : n + 1]])}
        for bidder, found in won.items() for n, (a, _) in enumerate(found)
    ]  # fmt: skip


def last_auction_alone(events):
    """Megaphone's query 3: of the auctions that come before their seller, the last one alone is kept."""
    known, waiting, out = {}, {}, []
    for e in events:
        if e["kind"] == PERSON and e["state"] in {"OR", "ID", "CA"}:
            known[e["id"]] = e
            out += [(e, waiting[e["id"]])] if e["id"] in waiting else []
        elif e["kind"] == AUCTION and e["category"] == 10:
            waiting[e["seller"]] = e
            out += [(known[e["seller"]], e)] if e["seller"] in known else []
    return [{**{name: p[name] for name in ("name", "city", "state")}, "auction": a["id"]} for p, a in out]


def without_closing(events):
    """nexmark/nexmark's query 4: the highest bid of every auction up to its end and at it, whatever the reserve."""
    later = [{**e, "expires": e["expires"] + 1, "reserve": 0} if e["kind"] == AUCTION else e for e in events]
    return FROM_SCRATCH["q4"](later)


def running_average(events):
    """Megaphone's query 4: the average of all closings so far, rounded down."""
    prices, out = defaultdict(list), []
    for a, price in closings(events):
        prices[a["category"]].append(price)
        mean = sum(prices[a["category"]]) // len(prices[a["category"]])
        out.append({"start": a["expires"] // (5 * S) * 5 * S, "category": a["category"], "price": mean})
    return out


def most_per_bin(events):
    """Megaphone's query 5: a maximum per worker or bin."""
    bins = [[e for e in events if e["kind"] == BID and e["auction"] % BINS == b] for b in range(BINS)]
    return [answer for part in bins for answer in FROM_SCRATCH["q5"](part)]


def swapped(events):
    """nexmark/nexmark's query 7: the columns stand in another order than the sink's."""
    return [{**r, "auction": r["price"], "price": r["auction"]} for r in FROM_SCRATCH["q7"](events)]


def both_ends(events):
    """nexmark/nexmark's query 7: BETWEEN takes a bid at a window's end too."""
    bids, out = of(events, BID), []
    for start in sorted({b["dateTime"] // (10 * S) * 10 * S for b in bids}):
        inside = [b for b in bids if start <= b["dateTime"] <= start + 10 * S]
        best = [b for b in inside if b["price"] == max(other["price"] for other in inside)]
        out += [
            {"start": start, **{name: b[name] for name in ("auction", "bidder", "price", "dateTime")}} for b in best
        ]
    return out


def persons_from_auctions(events):
    """Megaphone's query 8: persons are read from the stream of auctions."""
    auctions = of(events, AUCTION)
    return FROM_SCRATCH["q8"]([*({**a, "kind": PERSON, "name": ""} for a in auctions), *auctions])


DEFECTS = {
    "flink q4 without closing": ("q4", without_closing),
    "flink q6 of eleven rows": ("q6", eleven_rows),
    "flink q7 with both ends": ("q7", both_ends),
    "flink q7 with swapped columns": ("q7", swapped),
    "megaphone q3 with the last auction": ("q3", last_auction_alone),
    "megaphone q4 with a running average": ("q4", running_average),
    "megaphone q5 with a maximum per bin": ("q5", most_per_bin),
    "megaphone q6 by bidder": ("q6", by_bidder),
    "megaphone q8 without persons": ("q8", persons_from_auctions),
}


def edges(query):
    """Returns events of which each defect makes something else."""
    events = random_events(3, 200)
    at = max(e["dateTime"] for e in events) // (10 * S) * 10 * S + 20 * S
    many = [auction(500 + n, at, at + 1_000 + n, seller=900) for n in range(12)]
    many += [bid(500 + n, at + 1, 50 if n == 0 else 5, bidder=n) for n in range(12)]
    late = [bid(601, at + 10 * S, 90), person(901, at + 10 * S + 1)]
    more = [auction(700 + n, at + 11 * S, at + 12 * S, seller=902) for n in range(2)]
    return [*events, *many, *late, *more, person(902, at + 11 * S + 1), *ends(query), *ends(query)]


@pytest.mark.parametrize("name", DEFECTS)
def test_an_answer_with_a_defect_is_not_taken(name):
    query, defective = DEFECTS[name]
    events = edges(query)
    real = [e for e in events if e["dateTime"] < 1_000_000]
    assert judged(query, events, results(FROM_SCRATCH[query](real)))[0].clean
    totals = judged(query, events, results(defective(real)))[0].totals
    assert totals["lost"] + totals["doubled"] + totals["wrong"] > 0


def test_queries_that_beam_has_not_or_answers_in_another_way_follow_flink():
    flink = {"q3", "q10", "q12", "q13", "q14", "q15", "q16", "q17", "q18", "q19", "q20", "q21", "q22"}
    assert {name for name, query in QUERIES.items() if query.dialect != "beam"} == flink


def test_sparks_own_twin_takes_ten_auctions_too():
    prices = [100, *[10] * 11]
    assert means_of_last([], prices) == [100, 55, 40, 33, 28, 25, 23, 21, 20, 19, 10, 10]
    assert means_of_last(prices[:11][-10:], prices[11:]) == [10]


@pytest.mark.parametrize(
    ("bids", "wins"),
    [([(5, 999)], -1), ([(5, 1_000)], 5), ([(5, 1_999)], 5), ([(5, 2_000)], -1), ([(4, 1_500)], -1),
     ([(6, 1_500), (7, 1_500), (9, 2_000)], 7), ([], -1)],
)  # fmt: skip
def test_sparks_own_twin_keeps_times_half_open_and_reserves(bids, wins):
    assert best_bid((1_000, 2_000, 5), [(*bid, 1) for bid in bids])[0] == wins
