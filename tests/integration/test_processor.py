"""Spark's StatefulProcessor on this runtime with real Spark and Kafka: keys as Spark computes them, a rescale."""

import datetime as dt
import json
from collections import Counter
from decimal import Decimal

import pytest
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from pyspark.sql.types import Row
from topics import json_rows, producer_for

pytestmark = pytest.mark.spark


class RunningCounts(StatefulProcessor):
    """Counts per user and kind, with a list of the amounts, as a user of Spark writes it."""

    def init(self, handle):
        self.total = handle.getValueState("total", "n long, amount double")
        self.kinds = handle.getMapState("kinds", "kind string", "n long")
        self.seen = handle.getListState("seen", "at long")

    def handleInputRows(self, key, rows, timerValues):  # noqa: N802, N803
        n, amount = self.total.get() or (0, 0.0)
        for row in rows:
            n, amount = n + 1, amount + row.amount
            before = self.kinds.getValue((row.kind,))
            self.kinds.updateValue((row.kind,), ((before.n if before else 0) + 1,))
            self.seen.appendValue((row.offset,))
        self.total.update((n, amount))
        kinds = {kind: n for (kind,), (n,) in self.kinds.iterator()}
        yield Row(user=key[0], n=n, amount=amount, kinds=kinds, seen=len(list(self.seen.get())))


def moment(*parts: int) -> dt.datetime:
    """A time as Spark gives it, without a time zone."""
    return dt.datetime(*parts)  # noqa: DTZ001


@pytest.mark.parametrize("pair", [False, True])
def test_counts_survive_a_rescale(spark, kafka, topic_factory, tmp_path, results_of, pair):
    import impls
    from impls.worker.output import Output

    source, sink = topic_factory(2), topic_factory(4)
    producer = producer_for(kafka)

    def send(times: int) -> None:
        for i in range(times * 20):
            producer.produce(source, json.dumps({"user": f"u{i % 20}", "kind": f"k{i % 3}", "amount": 1.5}))
        producer.flush(10)

    events = json_rows(spark, kafka, source, "user string, kind string, amount double")
    send(2)
    with impls.transform_with_state(
        (events, ["user"]) if pair else events.groupBy("user"),
        RunningCounts(),
        "user string, n long, amount double, kinds map<string, long>, seen int",
        "update",
        "none",
        results=Output(kafka, sink, 4),
        state_dir=tmp_path / "state",
        checkpoint=tmp_path / "checkpoint",
        workers=2,
        bins=16,
    ) as query:
        results_of(sink).wait_for(20, "the first counts")
        query.rescale(workers=4)
        send(3)
        assert query.await_migration(60)
        send(1)
        deadline = 60
        values = []
        while deadline and sum(1 for v in map(json.loads, values) if v["n"] == 6) < 20:
            values = results_of(sink).wait_for(len(values) + 1, "the counts after the rescale")
            deadline -= 1
        assert query.status()["workers"] == 4
    last = {value["user"]: value for value in map(json.loads, values) if value["n"] == 6}
    assert len(last) == 20
    for user, value in last.items():
        assert value["seen"] == sum(value["kinds"].values()) == 6, user
        assert value["amount"] == 9.0


def test_spark_and_python_give_a_key_the_same_bytes(spark):
    from impls.processor.keys import KeyCodec, key_sql

    rows = [
        (True, 1, -5, 7, 1 << 40, 1.5, -0.0, "ä", b"x\0", Decimal("-12.50"), dt.date(1969, 12, 31),
         moment(2026, 1, 2, 3, 4, 5, 678901), moment(1955, 1, 2, 3, 4, 5, 678901),
         dt.timedelta(days=-3, seconds=5, microseconds=7), [1, None, 3], (5, "é"), Decimal("1E-18"), "last"),
        (None,) * 18,
        (False, -1, 5, -7, -(1 << 60), float("nan"), float("inf"), "", b"", Decimal("0.00"), dt.date(2026, 5, 6),
         moment(1969, 1, 1), moment(2100, 1, 1), dt.timedelta(0), [], (None, ""), Decimal("5"), ""),
    ]  # fmt: skip
    ddl = (
        "a boolean, b byte, c short, d int, e long, f float, g double, h string, i binary, j decimal(9,2), k date, "
        "l timestamp, m timestamp_ntz, n interval day to second, o array<int>, p struct<x: long, y: string>, "
        "q decimal(38,18), r string"
    )
    frame = spark.createDataFrame(rows, ddl)
    sql = key_sql(frame.schema, [f"`{name}`" for name in frame.columns])
    codec = KeyCodec(frame.schema)
    found = frame.selectExpr("*", f"{sql} as bytes").collect()
    for row in found:
        assert codec.encode(row[:-1]) == bytes(row.bytes)
        again = codec.decode(bytes(row.bytes))
        assert Counter(map(repr, again)) == Counter(map(repr, row[:-1])) or row.g == 0


def test_schemas_of_keys_that_cannot_be_are_refused(spark, tmp_path):
    import impls

    frame = spark.readStream.format("rate").load()
    with pytest.raises(impls.UsageError, match="Group by columns"):
        impls.transform_with_state(
            frame.groupBy(frame.value % 10), RunningCounts(), "n long", "update", "none", results=None,
            state_dir=tmp_path, checkpoint=tmp_path, workers=1,
        )  # fmt: skip
