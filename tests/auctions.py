"""NEXMark by hand: events as dictionaries, queries run on them without Spark, and answers worked out from scratch."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
from timed import TimedRun

from impls.operators.nexmark import QUERIES, make
from impls.operators.nexmark.base import AUCTION, BID, PERSON

SECOND = 1000
FAR = 1_000_000
Event = dict[str, Any]


def person(id_: int, time: int, state: str = "OR", name: str = "") -> Event:
    return {"kind": PERSON, "id": id_, "dateTime": time, "name": name or f"p{id_}", "city": "Boise", "state": state}


def auction(id_: int, time: int, expires: int, *, seller: int = 1, reserve: int = 0, category: int = 10) -> Event:
    more = {"seller": seller, "reserve": reserve, "category": category, "expires": expires}
    return {"kind": AUCTION, "id": id_, "dateTime": time, **more}


def bid(auction_: int, time: int, price: int, bidder: int = 1) -> Event:
    return {"kind": BID, "auction": auction_, "dateTime": time, "price": price, "bidder": bidder}


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
) -> TimedRun:
    """Runs a query over epochs that end before the events numbered `cuts`."""
    run = TimedRun(folder, make(name, partitions=1), mechanism=options.pop("mechanism", "none"), **options)
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
            out.append(bid(named, time, int(random.integers(0, 6)), int(random.integers(0, 3))))
    return out


def of(events: Iterable[Event], kind: int) -> list[Event]:
    return [event for event in events if event["kind"] == kind]


def closings(events: Sequence[Event]) -> list[tuple[Event, int]]:
    """Returns (auction, winning price) of every auction with a winner, by closing time and id."""
    bids, out = of(events, BID), []
    for a in of(events, AUCTION):
        prices = [
            b["price"]
            for b in bids
            if b["auction"] == a["id"] and a["dateTime"] <= b["dateTime"] < a["expires"] and b["price"] >= a["reserve"]
        ]
        if prices:
            out.append((a, max(prices)))
    return sorted(out, key=lambda c: (c[0]["expires"], c[0]["id"]))


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


FROM_SCRATCH = {"q3": _q3, "q4": _q4, "q5": _q5, "q6": _q6, "q7": _q7, "q8": _q8}
