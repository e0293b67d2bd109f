"""Fraud rules that are replaced while the query runs: what a card has spent stays, and is judged by the new rules.

First a single large payment is an alert. Then, while the query goes from 2 to 4 workers, the rule is replaced: what a
card has spent in all counts. At last the operator itself is replaced by one that also knows the cities of a card.
"""

import json
from typing import Any

import impls
from impls.operators import EventTime, KeyedProcess, Pipeline, ResultMap
from rescale_bench.playground import Playground, run, say

CARDS = 100


class Spending(KeyedProcess):
    """State of a card: what it has spent."""

    event_time = EventTime("at")
    columns = ("at", "amount", "city")

    def record(self, record: dict[str, Any], one: Any) -> None:
        total = (one.value() or 0) + record["amount"]
        one.set_value(total)
        one.emit({"card": one.key.decode(), "amount": record["amount"], "total": total, "cities": 0})


class SpendingByCity(KeyedProcess):
    """State of a card: what it has spent, and where."""

    event_time = EventTime("at")
    columns = ("at", "amount", "city")

    def record(self, record: dict[str, Any], one: Any) -> None:
        total, cities = one.value() or (0, [])
        total, cities = total + record["amount"], sorted({*cities, record["city"]})
        one.set_value([total, cities])
        one.emit({"card": one.key.decode(), "amount": record["amount"], "total": total, "cities": len(cities)})


def rule(holds: Any) -> ResultMap:
    """A step behind the operator that lets through what a rule holds for."""
    return ResultMap("rule", lambda _key, raw: raw if holds(json.loads(raw)) else None)


def large(one: dict[str, Any]) -> bool:
    return one["amount"] >= 90


def much(one: dict[str, Any]) -> bool:
    return one["total"] >= 150


def travels(one: dict[str, Any]) -> bool:
    return one["cities"] >= 2 and one["total"] >= 150


def main(here: Playground) -> None:
    payments, alerts = here.topic("payments", 2), here.topic("alerts", 4)
    rows = here.spark.readStream.format("kafka").option("kafka.bootstrap.servers", here.kafka)
    rows = rows.option("subscribe", payments).option("startingOffsets", "earliest").load()
    parsed = rows.selectExpr(
        "from_json(string(value), 'card string, amount long, city string, at long') r", "partition", "offset"
    )
    with impls.stream(
        parsed.select("r.*", "partition", "offset"), key="card",
        operator=Pipeline((rule(large),), Spending()), results=impls.Output(here.kafka, alerts, 4),
        state_dir=here.folder / "state", checkpoint=here.folder / "checkpoint", workers=2, bins=64,
    ) as query:  # fmt: skip
        here.send(payments, paid(1, "Rome"), by="card")
        here.results(alerts, 10, query)
        say(f"Large payments: 10 alerts; workers: {query.status()['workers']}.")
        query.rescale(workers=4)
        say(f"Rule replaced: {query.await_change(query.replace(rule(much)), 60)['state']}.")
        here.send(payments, paid(2, "Rome"), by="card")
        here.results(alerts, 35, query)
        query.await_migration(60)
        say(f"Much spent in all: 25 alerts; workers: {query.status()['workers']}, bins: {query.status()['bins']}.")
        change = query.replace(SpendingByCity(), migrate=lambda total, _name: [total, ["Rome"]])
        say(f"Operator replaced: {query.await_change(change, 60)['state']}.")
        say(f"Rule replaced: {query.await_change(query.replace(rule(travels)), 60)['state']}.")
        here.send(payments, paid(3, "Oslo"), by="card")
        here.results(alerts, 35 + 50, query)
    here.check("alerts", here.results(alerts), expected())


def paid(day: int, city: str) -> list[dict[str, Any]]:
    """A payment of each card: card n pays n, and so 3 n in three days."""
    return [{"card": f"c{n}", "amount": n, "city": city, "at": day} for n in range(CARDS)]


def expected() -> list[dict[str, Any]]:
    return [
        one
        for day, holds in ((1, large), (2, much), (3, travels))
        for n in range(CARDS)
        if holds(one := {"card": f"c{n}", "amount": n, "total": day * n, "cities": 2 if day == 3 else 0})
    ]


if __name__ == "__main__":
    run(main)
