"""A join of two streams: each order with its payment, if that is made within a minute; else the order is unpaid.

The query begins with 2 workers and goes on with 3, while orders wait for their payments.
"""

from typing import Any

from pyspark.sql import DataFrame

import impls
from impls.operators import EventTime, KeyedProcess
from rescale_bench.playground import Playground, run, say

WITHIN = 60  # seconds
ORDERS = 200


class Payments(KeyedProcess):
    """State of an order: by side, "order" or "payment", the time of what has come."""

    event_time = EventTime("at", partitions=4)  # two of each topic
    columns = ("at", "side")

    def record(self, record: dict[str, Any], one: Any) -> None:
        known = {**(one.value() or {}), record["side"]: one.time}
        if len(known) < 2:
            one.set_value(known)
            one.set_timer(one.time + WITHIN)
        else:
            one.cancel_timer(min(known.values()) + WITHIN)
            one.cancel_timer(max(known.values()) + WITHIN)
            self.end(known, one)

    def timer(self, one: Any) -> None:
        self.end(one.value(), one)

    def end(self, known: dict[str, int], one: Any) -> None:
        paid = len(known) == 2 and abs(known["payment"] - known["order"]) <= WITHIN
        if "order" in known:  # a payment alone came too late: its order has been told as unpaid
            one.emit({"order": one.key.decode(), "seconds": known["payment"] - known["order"] if paid else None})
        one.set_value(None)


def read(here: Playground, topic: str, side: str) -> DataFrame:
    """A topic's records, with the name of their side."""
    rows = here.spark.readStream.format("kafka").option("kafka.bootstrap.servers", here.kafka)
    rows = rows.option("subscribe", topic).option("startingOffsets", "earliest").load()
    parsed = rows.selectExpr("from_json(string(value), 'id string, at long') r", f"'{side}' side")
    return parsed.select("r.*", "side")


def main(here: Playground) -> None:
    orders, payments, results = here.topic("orders", 2), here.topic("payments", 2), here.topic("paid", 4)
    both = read(here, orders, "order").unionByName(read(here, payments, "payment"))
    with impls.stream(
        both, key="id", operator=Payments(), results=impls.Output(here.kafka, results, 4),
        state_dir=here.folder / "state", checkpoint=here.folder / "checkpoint", workers=2, bins=64,
    ) as query:  # fmt: skip
        here.send(orders, ({"id": f"o{n}", "at": n} for n in range(ORDERS)), by="id")
        paid = sorted((n + delay(n), n) for n in range(ORDERS) if delay(n) is not None)
        here.send(payments, ({"id": f"o{n}", "at": at} for at, n in paid if at < ORDERS // 2), by="id")
        here.results(results, 10, query)
        say(f"Payments meet their orders; workers: {query.status()['workers']}.")
        query.rescale(workers=3)
        here.send(payments, ({"id": f"o{n}", "at": at} for at, n in paid if at >= ORDERS // 2), by="id")
        query.await_migration(60)
        say(f"The query has not stopped; workers: {query.status()['workers']}, bins: {query.status()['bins']}.")
        for topic in (orders, payments):
            here.send_everywhere(
                topic, {"id": f"last of {topic}", "at": 10_000}
            )  # time passes, and with it the last minute
        here.results(results, ORDERS, query)
    here.check("orders", here.results(results), expected())


def delay(order: int) -> int | None:
    """Seconds from order to payment; every fifth order is not paid, every seventh of the others too late."""
    return None if order % 5 == 0 else WITHIN + 20 if order % 7 == 0 else order % 50


def expected() -> list[dict[str, Any]]:
    seconds = {n: delay(n) for n in range(ORDERS)}
    return [{"order": f"o{n}", "seconds": s if s is not None and s <= WITHIN else None} for n, s in seconds.items()]


if __name__ == "__main__":
    run(main)
