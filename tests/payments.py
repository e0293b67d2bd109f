"""Payments in a topic, aggregates of them as Spark's own query makes them, and what these are."""

import json
from collections import defaultdict
from decimal import ROUND_HALF_UP, Decimal

from topics import json_rows, producer_for

USERS, SHOPS = 12, (1, 2)
VALUES = {
    "n": "count(*)", "total": "sum(amount)", "mean": "avg(price)", "low": "min(price)", "last": "max(word)",
    "fees": "sum(fee)", "fee_mean": "avg(fee)", "taxes": "sum(tax)",  # of short decimals Spark keeps no decimals
}  # fmt: skip
TYPES = "fee decimal(8,2)"


class Payments:
    """Records of payments in a topic, and what aggregates of all of them are."""

    def __init__(self, kafka, topic):
        self.kafka, self.topic, self.sent = kafka, topic, []
        self._producer = producer_for(kafka)

    def send(self, rounds):
        for _ in range(rounds):
            for user in range(USERS):
                for shop in SHOPS:
                    n = len(self.sent)
                    user_ = None if user == 0 else f"u{user}" * (250 if user == 1 else 1)
                    record = {"user": user_, "shop": shop, "amount": n % 7, "price": n % 5 / 4, "word": f"w{n % 90:03}"}
                    if n % 11 == 0:
                        record["amount"] = record["price"] = None
                    record |= {"fee": record["price"], "tax": record["price"] if shop == 1 else None}
                    self.sent.append(record)
                    self._producer.produce(self.topic, json.dumps(record), partition=n % 2)
        self._producer.flush(10)

    def frame(self, spark):
        fields = f"user string, shop int, amount int, price double, word string, {TYPES}, tax decimal(20,2)"
        return json_rows(spark, self.kafka, self.topic, fields)

    def expected(self):
        keys = defaultdict(list)
        for record in self.sent:
            keys[record["user"], record["shop"]].append(record)
        return {key: row_of(key, records) for key, records in keys.items()}


def row_of(key, records):
    amounts = [r["amount"] for r in records if r["amount"] is not None]
    prices = [r["price"] for r in records if r["price"] is not None]
    row = {
        "user": key[0], "shop": key[1], "n": len(records), "total": sum(amounts) if amounts else None,
        "mean": sum(prices) / len(prices) if prices else None, "low": min(prices, default=None),
        "last": max(r["word"] for r in records), "fees": sum(prices) if prices else None,
        "taxes": sum(prices) if prices and key[1] == 1 else None,
    }  # fmt: skip
    if prices:
        mean = Decimal(sum(prices)) / len(prices)
        row["fee_mean"] = float(mean.quantize(Decimal("1e-6"), ROUND_HALF_UP))
    return {name: value for name, value in row.items() if value is not None}


def aggregated(spark, stream):
    """Spark's own query."""
    stream.frame(spark).createOrReplaceTempView("payments")
    return spark.sql(
        "SELECT user, shop, count(*) n, sum(amount) total, avg(price) mean, min(price) low, max(word) last, "
        "sum(fee) fees, avg(fee) fee_mean, sum(tax) taxes FROM payments GROUP BY user, shop"
    )
