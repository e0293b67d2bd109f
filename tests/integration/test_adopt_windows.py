"""A native aggregation by windows goes on here: what they had is kept, and what is late by Spark's clock left out."""

import json
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from native_query import native_session, run_native
from pyspark.sql import functions as F  # noqa: N812
from topics import producer_for

pytestmark = [pytest.mark.spark, pytest.mark.lengthy]
BEGIN, SECONDS = datetime(2026, 1, 1, tzinfo=UTC), 10


class Clicks:
    """Clicks in a topic, and how many of each user are in each window."""

    def __init__(self, kafka, topic):
        self.kafka, self.topic, self.counts = kafka, topic, Counter()
        self._producer = producer_for(kafka)

    def send(self, seconds, *, late=False):
        for second in seconds:
            for user in ("a", "b", "c"):
                click = {"user": user, "at": (BEGIN + timedelta(seconds=second)).isoformat()}
                self._producer.produce(self.topic, json.dumps(click), partition=second % 2)
                self.counts[user, second // SECONDS * SECONDS] += not late
        self._producer.flush(10)

    def frame(self, spark):
        source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", self.kafka)
        rows = source.option("subscribe", self.topic).option("startingOffsets", "earliest").load()
        parsed = rows.selectExpr("from_json(string(value), 'user string, at timestamp') r", "partition", "offset")
        clicks = parsed.select("r.*", "partition", "offset").withWatermark("at", "3 seconds")
        return clicks.withColumn("window", F.window("at", f"{SECONDS} seconds"))


def rows_of(values):
    """The last count of each user and window, by the window's begin in seconds."""
    found = {}
    for row in map(json.loads, values):
        begin = datetime.fromisoformat(row["window"]["start"]) - BEGIN
        found[row["user"], int(begin.total_seconds())] = row["n"]
    return found


def test_windows_and_their_watermark_go_on_here(spark, kafka, topic_factory, tmp_path, results_of):
    import impls
    from impls.worker.output import Output

    clicks, sink, native = Clicks(kafka, topic_factory(2)), topic_factory(4), tmp_path / "native"
    clicks.send(range(26))
    run_native(clicks.frame(native_session(spark)).groupBy("window", "user").count(), native)  # watermark: 22 s
    impls.adopt(spark, native, tmp_path / "ours", bootstrap=kafka, aggregates={"n": "count(*)"}, bins=16, workers=2)
    clicks.send([5, 15], late=True)
    clicks.send(range(26, 40))
    with impls.aggregate(
        clicks.frame(spark), ["window", "user"], {"n": "count(*)"}, results=Output(kafka, sink, 4),
        state_dir=tmp_path / "state", checkpoint=tmp_path / "ours", workers=2, bins=16,
    ) as query:  # fmt: skip
        expected = {name: n for name, n in clicks.counts.items() if n and name[1] >= 20}
        values = results_of(sink).wait_for(len(expected), "the counts of windows that are open")
        query.rescale(workers=3)
        clicks.send(range(40, 70))
        expected = {name: n for name, n in clicks.counts.items() if n and name[1] >= 20}
        while rows_of(values) != expected:
            values = results_of(sink).wait_for(len(values) + 1, f"other counts than {rows_of(values)}")
        assert query.await_migration(60)
    assert not {begin for _, begin in rows_of(values)} & {0, 10}
