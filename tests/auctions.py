"""NEXMark by hand: events as dictionaries, queries run on them without Spark, and answers worked out from scratch."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
from staged import TwoStages, query_run
from timed import TimedRun

from impls.operators.nexmark import QUERIES
from impls.operators.nexmark.base import AUCTION, BID, PERSON

SECOND = 1000
FAR = 1_000_000
Event = dict[str, Any]
BinOf = Callable[[int], int]


def person(id_: int, time: int, state: str = "OR", name: str = "") -> Event:
    return {"kind": PERSON, "id": id_, "dateTime": time, "name": name or f"p{id_}", "city": "Boise", "state": state}


def auction(id_: int, time: int, expires: int, *, seller: int = 1, reserve: int = 0, category: int = 10) -> Event:
    more = {"seller": seller, "reserve": reserve, "category": category, "expires": expires}
    return {"kind": AUCTION, "id": id_, "dateTime": time, **more}


def bid(auction_: int, time: int, price: int, bidder: int = 1) -> Event:
    channel = ("Apple", "channel-1", "channel-2")[(price + bidder) % 3]
    url = f"https://www.nexmark.com/a{bidder}/b/c/item.htm?query=1" + "&channel_id=7" * (channel == "channel-1")
    more = {"channel": channel, "url": url, "extra": "abc" * bidder}
    return {"kind": BID, "auction": auction_, "dateTime": time, "price": price, "bidder": bidder, **more}


def rows(name: str, events: Iterable[Event], partitions: int = 1) -> list[tuple[int, int, Event]]:
    """Returns the events that a query reads, as its projection does: filtered, keyed, spread over partitions."""
    query = QUERIES[name]
    out = []
    for number, event in enumerate(events):
        if event["kind"] in query.keys and _passes(event, query.where.get(event["kind"], "")):
            out.append((number % partitions, event[query.keys[event["kind"]]], event))
    return out


def _passes(event: Event, condition: str) -> bool:
    if not condition:
        return True
    columns = ", ".join(f"{value!r} AS {name}" for name, value in event.items())
    return bool(duckdb.sql(f"SELECT ({condition}) FROM (SELECT {columns})").fetchall()[0][0])


def ends(name: str) -> list[Event]:
    """Returns events so late that everything before them is closed, and that have no answer themselves."""
    return [event for event in (bid(10**9, FAR, 1), person(10**9, FAR)) if event["kind"] in QUERIES[name].keys][:1]


def answers(
    folder: Path, name: str, events: Sequence[Event], cuts: Sequence[int] = (), *, flush: bool = True, **options: Any
) -> TimedRun | TwoStages:
    """Runs a query over epochs that end before the events numbered `cuts`."""
    run = query_run(folder, name, mechanism=options.pop("mechanism", "none"), **options)
    edges = [0, *cuts, len(events)]
    for low, high in pairwise(edges):
        run.epoch(rows(name, events[low:high]))
    if flush:
        run.epoch(rows(name, ends(name)))
        run.settle()
    return run


def random_events(seed: int, number: int) -> list[Event]:
    """Returns events that meet each other often: few ids, few prices, close times, ids named before they exist."""
    random, time, out = np.random.default_rng(seed), 0, []
    persons = auctions = 0
    for _ in range(number):
        time += int(random.integers(0, 1500))
        kind = random.choice([PERSON, AUCTION, BID], p=[0.15, 0.25, 0.6])
        if kind == PERSON:
            out.append(person(persons, time, str(random.choice(["OR", "ID", "CA", "WA"]))))
            persons += 1
        elif kind == AUCTION:
            expires = time + 1 + int(random.integers(0, 12 * SECOND))
            seller = int(random.integers(max(0, persons - 4), persons + 2))
            price, category = int(random.integers(0, 4)), int(random.integers(10, 12))
            out.append(auction(auctions, time, expires, seller=seller, reserve=price, category=category))
            auctions += 1
        else:
            named = int(random.integers(max(0, auctions - 6), auctions + 2))
            price = (0, 1, 2, 3, 10_000, 1_200_000)[random.integers(0, 6)]
            out.append(bid(named, time, price, int(random.integers(0, 3))))
    return out


def of(events: Iterable[Event], kind: int) -> list[Event]:
    return [event for event in events if event["kind"] == kind]


def winners(events: Sequence[Event]) -> list[tuple[Event, Event]]:
    """Returns (auction, winning bid) of every auction with a winner, by closing time and id."""
    bids, out = of(events, BID), []
    for a in of(events, AUCTION):
        valid = [
            b for b in bids
            if b["auction"] == a["id"] and a["dateTime"] <= b["dateTime"] < a["expires"] and b["price"] >= a["reserve"]
        ]  # fmt: skip
        if valid:
            out.append((a, min(valid, key=lambda b: (-b["price"], b["dateTime"], b["bidder"]))))
    return sorted(out, key=lambda c: (c[0]["expires"], c[0]["id"]))


def closings(events: Sequence[Event]) -> list[tuple[Event, int]]:
    """Returns (auction, winning price) of every auction with a winner, by closing time and id."""
    return [(a, b["price"]) for a, b in winners(events)]


def rounded(prices: Sequence[int]) -> int:
    return int(sum(prices) / len(prices) + 0.5)


def _q3(events: Sequence[Event]) -> list[Event]:
    return [
        {"name": p["name"], "city": p["city"], "state": p["state"], "auction": a["id"]}
        for p in of(events, PERSON)
        for a in of(events, AUCTION)
        if a["seller"] == p["id"] and a["category"] == 10 and p["state"] in {"OR", "ID", "CA"}
    ]


def _q4(events: Sequence[Event]) -> list[Event]:
    windows = defaultdict(list)
    for a, price in closings(events):
        for start in range(-5 * SECOND, FAR, 5 * SECOND):
            if start <= a["expires"] < start + 10 * SECOND:
                windows[start, a["category"]].append(price)
    return [{"start": s, "category": c, "price": rounded(prices)} for (s, c), prices in windows.items()]


def _q5(events: Sequence[Event]) -> list[Event]:
    windows: dict[int, Counter[int]] = defaultdict(Counter)
    for b in of(events, BID):
        for start in range(-5 * SECOND, FAR, 5 * SECOND):
            if start <= b["dateTime"] < start + 10 * SECOND:
                windows[start][b["auction"]] += 1
    return [
        {"start": s, "auction": a, "bids": n} for s, found in windows.items() for a, n in found.items()
        if n == max(found.values())
    ]  # fmt: skip


def _q6(events: Sequence[Event]) -> list[Event]:
    sold = defaultdict(list)
    out = []
    for a, price in closings(events):
        sold[a["seller"]].append(price)
        out.append({"seller": a["seller"], "auction": a["id"], "price": rounded(sold[a["seller"]][-10:])})
    return out


def _q7(events: Sequence[Event]) -> list[Event]:
    bids = of(events, BID)
    return [
        {"start": s, **{name: b[name] for name in ("auction", "bidder", "price", "dateTime")}}
        for s, b in ((b["dateTime"] // 10_000 * 10_000, b) for b in bids)
        if b["price"] == max(o["price"] for o in bids if o["dateTime"] // 10_000 * 10_000 == s)
    ]


def _q8(events: Sequence[Event]) -> list[Event]:
    return [
        {"start": p["dateTime"] // 10_000 * 10_000, "id": p["id"], "name": p["name"], "auction": a["id"],
         "reserve": a["reserve"]}
        for p in of(events, PERSON) for a in of(events, AUCTION)
        if a["seller"] == p["id"] and p["dateTime"] // 10_000 == a["dateTime"] // 10_000
    ]  # fmt: skip


def _q9(events: Sequence[Event]) -> list[Event]:
    return [
        {"auction": a["id"], "seller": a["seller"], "expires": a["expires"],
         **{name: b[name] for name in ("bidder", "price", "dateTime")}}
        for a, b in winners(events)
    ]  # fmt: skip


def _q11(events: Sequence[Event]) -> list[Event]:
    times = defaultdict(list)
    for b in of(events, BID):
        times[b["bidder"]].append(b["dateTime"])
    out = []
    for bidder, at in times.items():
        at.sort()
        edges = [0, *(n for n, (a, b) in enumerate(pairwise(at), 1) if b - a >= 10 * SECOND), len(at)]
        out += [
            {"bidder": bidder, "bids": high - low, "start": at[low], "end": at[high - 1] + 10 * SECOND}
            for low, high in pairwise(edges)
        ]
    return out


def _grouped(events: Sequence[Event], *names: str) -> dict[tuple[Any, ...], list[Event]]:
    """Returns the bids by the window of 10 s that they are in and by fields of theirs."""
    groups = defaultdict(list)
    for b in of(events, BID):
        groups[b["dateTime"] // 10_000 * 10_000, *(b[name] for name in names)].append(b)
    return groups


def _ranks(bids: Sequence[Event]) -> dict[str, list[Event]]:
    edges = {"rank1": (0, 10_000), "rank2": (10_000, 1_000_000), "rank3": (1_000_000, 1 << 60)}
    return {"total": list(bids)} | {
        rank: [b for b in bids if low <= b["price"] < high] for rank, (low, high) in edges.items()
    }


def _statistics(bids: Sequence[Event]) -> Event:
    ranks = _ranks(bids)
    distinct = {"bidders": "bidder", "auctions": "auction"}
    return {f"{rank}_bids": len(found) for rank, found in ranks.items()} | {
        f"{rank}_{what}": len({b[name] for b in found})
        for what, name in distinct.items()
        for rank, found in ranks.items()
    }


def _q15(events: Sequence[Event]) -> list[Event]:
    return [{"start": start, **_statistics(bids)} for (start,), bids in _grouped(events).items()]


def _q16(events: Sequence[Event]) -> list[Event]:
    return [
        {"start": start, "channel": channel, "minute": _minute(max(b["dateTime"] for b in bids)), **_statistics(bids)}
        for (start, channel), bids in _grouped(events, "channel").items()
    ]


def _minute(time: int) -> str:
    return f"{time // 3_600_000 % 24:02d}:{time // 60_000 % 60:02d}"


def _q17(events: Sequence[Event]) -> list[Event]:
    out = []
    for (start, auction_), bids in _grouped(events, "auction").items():
        prices = [b["price"] for b in bids]
        counts = {rank: len(found) for rank, found in _ranks(bids).items()}
        more = {"least": min(prices), "most": max(prices), "mean": rounded(prices), "sum": sum(prices)}
        out.append({"start": start, "auction": auction_, **counts, **more})
    return out


def _q18(events: Sequence[Event]) -> list[Event]:
    fields = ("auction", "bidder", "price", "dateTime")
    return [
        {"start": start, **{name: last[name] for name in fields}}
        for (start, *_), bids in _grouped(events, "bidder", "auction").items()
        for last in [max(bids, key=lambda b: (b["dateTime"], b["price"]))]
    ]


def _q19(events: Sequence[Event]) -> list[Event]:
    fields = ("auction", "bidder", "price", "dateTime")
    return [
        {"start": start, **{name: b[name] for name in fields}, "rank": rank}
        for (start, _), bids in _grouped(events, "auction").items()
        for rank, b in enumerate(sorted(bids, key=lambda b: (-b["price"], b["dateTime"], b["bidder"]))[:10], 1)
    ]


def _q20(events: Sequence[Event]) -> list[Event]:
    return [
        {**{name: b[name] for name in ("auction", "bidder", "price", "dateTime")},
         **{name: a[name] for name in ("seller", "reserve", "expires")}}
        for b in of(events, BID) for a in of(events, AUCTION) if a["id"] == b["auction"] and a["category"] == 10
    ]  # fmt: skip


def _windows_of_bids(events: Sequence[Event], period: int) -> Iterator[tuple[int, Event]]:
    """Yields the start of each window of 10 s that a bid is in, with the bid."""
    for b in of(events, BID):
        last = b["dateTime"] // period * period
        yield from ((start, b) for start in range(last, last - 10 * SECOND, -period))


def _best_of_bins(rated: Mapping[tuple[int, int], Sequence[tuple[int, Event]]]) -> list[Event]:
    """Returns of each (bin, start) the rows of those that have the highest number."""
    return [
        {"at": start + 10 * SECOND - 1, "start": start, **row}
        for (_, start), found in rated.items()
        for number, row in found
        if number == max(n for n, _ in found)
    ]


def _first_q5(events: Sequence[Event], bin_of: BinOf) -> list[Event]:
    counts = Counter((start, b["auction"]) for start, b in _windows_of_bids(events, 5 * SECOND))
    rated = defaultdict(list)
    for (start, auction_), bids in counts.items():
        rated[bin_of(auction_), start].append((bids, {"auction": auction_, "bids": bids}))
    return _best_of_bins(rated)


def _first_q7(events: Sequence[Event], bin_of: BinOf) -> list[Event]:
    rated = defaultdict(list)
    for start, b in _windows_of_bids(events, 10 * SECOND):
        row = {name: b[name] for name in ("auction", "bidder", "price", "dateTime")}
        rated[bin_of(b["auction"]), start].append((b["price"], row))
    return _best_of_bins(rated)


def _first_q4(events: Sequence[Event], _: BinOf) -> list[Event]:
    return [{"at": a["expires"], "category": a["category"], "price": price} for a, price in closings(events)]


def _first_q6(events: Sequence[Event], _: BinOf) -> list[Event]:
    return [
        {"at": a["expires"], "seller": a["seller"], "auction": a["id"], "price": price}
        for a, price in closings(events)
    ]  # fmt: skip


OF_FIRST_STAGE = {"q4": _first_q4, "q5": _first_q5, "q6": _first_q6, "q7": _first_q7}
FROM_SCRATCH = {
    "q3": _q3, "q4": _q4, "q5": _q5, "q6": _q6, "q7": _q7, "q8": _q8, "q9": _q9, "q11": _q11, "q15": _q15, "q16": _q16,
    "q17": _q17, "q18": _q18, "q19": _q19, "q20": _q20,
}  # fmt: skip
