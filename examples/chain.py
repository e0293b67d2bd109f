"""Two processors one behind the other: what each user pays for a basket, and each minute's dearest basket in a city.

In Spark both `transformWithState` are in one query, in append mode. Here each is a stage that rescales by itself, while
baskets are open and minutes are not over: the first goes on with 3 workers, the second one with 4.
"""

from collections import Counter
from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

import impls
from rescale_bench.playground import Playground, run, say

MINUTE_MS, CITIES = 60_000, ("Athens", "Berlin", "Cairo")
PURCHASE = "user string, city string, price long, paid boolean, at timestamp"
BASKET = "city string, user string, worth long, paid_at timestamp"


class Baskets(StatefulProcessor):
    """State of a user: what the open basket is worth."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.open = handle.getValueState("open", "worth long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        for row in rows:
            self.open.update((row.price + (self.open.get()[0] if self.open.exists() else 0),))
            if row.paid:
                yield Row(city=row.city, user=key[0], worth=self.open.get()[0], paid_at=row.at)
                self.open.clear()

    def close(self) -> None: ...


class Dearest(StatefulProcessor):
    """State of a city: by minute the dearest basket in it, which is told when the minute is over."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.best = handle.getMapState("best", "minute long", "worth long, user string")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        for row in rows:
            minute = round(row.paid_at.timestamp() * 1000) // MINUTE_MS
            before = self.best.getValue((minute,)) if self.best.containsKey((minute,)) else (0, "")
            self.best.updateValue((minute,), max(tuple(before), (row.worth, row.user)))
            self.handle.registerTimer((minute + 1) * MINUTE_MS)
        yield from ()

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        minute = expiredTimerInfo.getExpiryTimeInMs() // MINUTE_MS - 1
        worth, user = self.best.getValue((minute,))
        self.best.removeKey((minute,))
        yield Row(city=key[0], minute=minute, user=user, worth=worth)

    def close(self) -> None: ...


def main(here: Playground) -> None:
    purchases, results = here.topic("purchases", 2), here.topic("dearest", 4)
    rows = here.spark.readStream.format("kafka").option("kafka.bootstrap.servers", here.kafka)
    rows = rows.option("subscribe", purchases).option("startingOffsets", "earliest").load()
    rows = rows.selectExpr(f"from_json(string(value), '{PURCHASE}') r", "partition", "offset")
    bought = rows.select("r.*", "partition", "offset").withWatermark("at", "90 seconds")
    tws = partial(impls.transform_with_state, outputMode="append", timeMode="eventTime")
    first = partial(tws, statefulProcessor=Baskets(), outputStructType=BASKET, eventTimeColumnName="paid_at")
    then = partial(tws, statefulProcessor=Dearest(), outputStructType="city string, minute int, user string, worth int")
    by_user = impls.Stage("baskets", first, 2, BASKET, select=lambda df: df.groupBy("user"))
    by_city = impls.Stage("dearest", then, 2, select=lambda df: df.withWatermark("paid_at", "0 days").groupBy("city"))
    with impls.chain(
        bought, [by_user, by_city], name=results, bootstrap=here.kafka, bins=64, checkpoint=here.folder / "checkpoint",
        results=impls.Output(here.kafka, results, 4), state_dir=here.folder / "state",
    ) as query:  # fmt: skip
        here.send(purchases, input_of(range(3)), by="user")
        here.results(results, len(CITIES), query)
        say("The first minute is over, baskets are open; workers: 2 and 2.")
        query.rescale("baskets", 3)
        query.rescale("dearest", 4)
        here.send(purchases, input_of(range(3, 6)), by="user")
        query.await_migration(60)
        one, other = (stage["workers"] for stage in query.status().values())
        say(f"The query has not stopped; workers: {one} and {other}.")
        here.send_everywhere(purchases, {**next(input_of(range(1))), "user": "nobody", "at": 10_000})  # minutes end
        here.results(results, 6 * len(CITIES), query)
    here.check("baskets", here.results(results), expected())


def input_of(minutes: range) -> Iterator[dict[str, Any]]:
    for minute, user in product(minutes, range(60)):
        about = {"user": f"u{user}", "city": CITIES[user % 3], "price": 1 + (user * 7 + minute * 13) % 50}
        yield {**about, "paid": (user + minute) % 2 == 0, "at": minute * 60 + user}


def expected() -> list[dict[str, Any]]:
    open_, paid = Counter[str](), dict[tuple[str, int], list[tuple[int, str]]]()
    for number, one in enumerate(input_of(range(6))):
        open_[one["user"]] += one["price"]
        if one["paid"]:
            paid.setdefault((one["city"], number // 60), []).append((open_.pop(one["user"]), one["user"]))
    best = {place: max(baskets) for place, baskets in paid.items()}
    return [{"city": c, "minute": m, "user": user, "worth": worth} for (c, m), (worth, user) in best.items()]


if __name__ == "__main__":
    run(main)
