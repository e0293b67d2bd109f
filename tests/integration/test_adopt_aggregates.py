"""A native aggregation is stopped, adopted and goes on here: over both of them every record counts exactly once."""

import json
import shutil
from collections import defaultdict
from decimal import ROUND_HALF_UP, Decimal

import pytest
from native_query import HDFS, ROCKSDB, files_below, native_session, run_native, uncommit
from topics import json_rows, producer_for

pytestmark = pytest.mark.spark
USERS, SHOPS = 12, (1, 2)
VALUES = {
    "n": "count(*)", "total": "sum(amount)", "mean": "avg(price)", "low": "min(price)", "last": "max(word)",
    "fees": "sum(fee)", "fee_mean": "avg(fee)", "taxes": "sum(tax)",  # of short decimals Spark keeps no decimals
}  # fmt: skip
TYPES = "fee decimal(8,2)"


class Stream:
    """Records of payments in a topic, and what aggregates of all of them are."""

    def __init__(self, kafka, topic):
        self.kafka, self.topic, self.sent = kafka, topic, []
        self._producer = producer_for(kafka)

    def send(self, rounds):
        for _ in range(rounds):
            for user in range(USERS):
                for shop in SHOPS:
                    n = len(self.sent)
                    user_ = None if user == 0 else f"u{user}"
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


def await_rows(reader, expected):
    """Waits until the last row of each key is the one expected; fails when no further row comes."""
    rows, number = {}, len(expected)
    while rows != expected:
        values = reader.wait_for(number, f"the rows that are still others than {rows}")
        rows = {(row.get("user"), row["shop"]): row for row in map(json.loads, values)}
        number = len(values) + 1


WITH_IDS = {  # what Spark's offline repartition asks for
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.stateStore.checkpointFormatVersion": "2",
}


@pytest.mark.parametrize(("provider", "more"), [(ROCKSDB, {}), (ROCKSDB, WITH_IDS), (HDFS, {})])
def test_a_native_aggregation_goes_on_here(spark, kafka, topic_factory, tmp_path, results_of, provider, more):
    import impls
    from impls.worker.output import Output

    stream, sink, native = Stream(kafka, topic_factory(2)), topic_factory(4), tmp_path / "native"
    session = native_session(spark, provider, **more)
    for _ in range(3):
        stream.send(3)
        run_native(aggregated(session, stream), native)
    last = uncommit(native)
    before = files_below(native)
    told = []
    adopted = impls.adopt(
        spark, native, tmp_path / "ours", bootstrap=kafka, aggregates=VALUES, types=TYPES, bins=16, workers=2,
        tell=lambda done, total: told.append((done, total)),
    )  # fmt: skip
    assert (adopted.batch, adopted.planned, adopted.entries) == (last - 1, True, USERS * len(SHOPS))
    assert files_below(native) == before
    stream.send(1)
    with impls.aggregate(
        stream.frame(spark), ["user", "shop"], VALUES, results=Output(kafka, sink, 4), state_dir=tmp_path / "state",
        checkpoint=tmp_path / "ours", workers=2, bins=16,
    ) as query:  # fmt: skip
        results_of(sink).wait_for(USERS * len(SHOPS), "the first rows")
        query.rescale(workers=4)
        stream.send(2)
        assert query.await_migration(60)
        await_rows(results_of(sink), stream.expected())
        assert query.status()["epoch"] > adopted.batch
        assert query.status()["workers"] == 4


def test_what_cannot_be_adopted_is_refused_and_leaves_nothing(spark, kafka, topic_factory, tmp_path):
    import impls

    stream, session = Stream(kafka, topic_factory(2)), native_session(spark)
    stream.send(1)
    how = {"bootstrap": kafka, "aggregates": VALUES, "bins": 16}
    distinct = stream.frame(session).select("user").dropDuplicates(["user"])
    run_native(distinct, tmp_path / "distinct")
    run_native(aggregated(session, stream), tmp_path / "native")
    run_native(stream.frame(session).groupBy().count(), tmp_path / "no-key")
    run_native(stream.frame(session).rollup("user", "shop").count(), tmp_path / "rollup")
    ours = tmp_path / "new" / "ours"

    def refused(why, native="native", **other):
        with pytest.raises(impls.UsageError, match=why):
            impls.adopt(spark, tmp_path / native, ours, **{**how, **other})
        assert not ours.parent.exists() or not list(ours.parent.iterdir())

    refused("dropDuplicates, which cannot be adopted", "distinct")
    refused(r"groupBy\(\) without a key, which cannot be adopted", "no-key", aggregates={"n": "count(*)"})
    refused("rollup, cube or grouping sets, which cannot be adopted", "rollup", aggregates={"n": "count(*)"})
    refused("which is not what", aggregates={"n": "sum(amount)"})
    refused("name each aggregate once", aggregates={"a": "sum(amount)", "b": "avg(price)", "c": "sum( amount )"})
    refused("have no window, and append mode needs one", output_mode="append")
    refused("name its aggregates", aggregates=None)
    refused("2 key columns", keys=["user"])
    refused("does not answer", bootstrap="127.0.0.1:9")
    frame = aggregated(session, stream).writeStream.format("noop").outputMode("update")
    running = frame.option("checkpointLocation", str(tmp_path / "native")).start()
    refused("is running: stop it first")
    running.stop()
    shutil.rmtree(tmp_path / "native" / "state" / "0" / "1")
    refused("cannot take over the state")
