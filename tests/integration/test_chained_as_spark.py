"""A chain beside the same operators chained by Spark itself, in append mode: equal rows, and here each rescales."""

import json
from functools import partial
from random import Random

import pytest
from linked import PARTITIONS, Topic
from pipeline import await_true
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming import StatefulProcessor
from topics import json_rows, producer_for

import impls

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300), pytest.mark.slow]
STEPS, STEP_S, DELAY = 6, 40, "50 seconds"  # a step is shorter than the delay, so that nothing is late for either
COUNTS = "window struct<start: timestamp, end: timestamp>, user string, n long"
FAR = 10_000


def sent(kafka, topic, rows):
    for row in rows:
        producer_for(kafka).produce(topic, json.dumps(row), partition=row["at"] % 2)
    assert producer_for(kafka).flush(30) == 0


def step(number):
    random = Random(number)
    return [{"user": f"u{random.randrange(8)}", "at": number * STEP_S + random.randrange(STEP_S)} for _ in range(200)]


def windowed(rows):
    return rows.withWatermark("at", DELAY).withColumn("window", F.window("at", "10 seconds"))


def by_minute(counts):
    """The counts by minute, as the next stage reads them: with the time that Spark's `window_time` gives."""
    timed = counts.withColumn("time", F.expr("window.end - INTERVAL 1 MICROSECOND")).drop("window")
    return timed.withWatermark("time", "0 seconds").withColumn("minute", F.window("time", "1 minute"))


def of_spark(spark, rows, name):
    """What Spark has sent behind all input, as JSON."""
    counts = windowed(rows).groupBy("window", "user").agg(F.count("*").alias("n"))
    minutes = counts.groupBy(F.window(F.window_time("window"), "1 minute").alias("minute"))
    best = minutes.agg(F.max("n").alias("most"), F.count("*").alias("counts"))
    query = best.select(F.to_json(F.struct("*")).alias("row")).writeStream.format("memory").queryName(name)
    started = query.outputMode("append").start()
    try:
        started.processAllAvailable()
        return sorted(row.row for row in spark.table(name).collect())
    finally:
        started.stop()


def test_windows_of_windows_are_those_of_spark(spark, kafka, topic_factory, tmp_path):
    topic, results = topic_factory(2), topic_factory(PARTITIONS)
    rows, found = json_rows(spark, kafka, topic, "user string, at timestamp"), Topic(kafka, results)
    append = partial(impls.aggregate, output_mode="append")
    stages = [
        impls.Stage("counts", partial(append, keys=["window", "user"], values={"n": "count(*)"}), 2, COUNTS),
        impls.Stage(
            "best", partial(append, keys=["minute"], values={"most": "max(n)", "counts": "count(*)"}), 2,
            select=by_minute,
        ),
    ]  # fmt: skip
    with impls.chain(
        windowed(rows), stages, name=topic.replace(".", "-"), bootstrap=kafka, state_dir=tmp_path / "state",
        results=impls.Output(kafka, results, PARTITIONS), checkpoint=tmp_path / "checkpoint", bins=16,
    ) as chain:  # fmt: skip
        for number in range(STEPS):
            sent(kafka, topic, step(number))
            if number == STEPS // 2:
                await_true(lambda: bool(found.read()), "the first minute has its result")
                chain.rescale("counts", 3)
                chain.rescale("best", 1)
        assert chain.await_migration(60)
        sent(kafka, topic, [{"user": "end", "at": FAR + partition} for partition in (0, 1)])
        await_true(lambda: len(found.read()) == STEPS * STEP_S // 60, "every minute has its result")
    assert all(times == 1 for times, _ in found.last.values())
    ours = sorted(json.dumps(row, separators=(",", ":")) for _, row in found.last.values())
    assert ours == of_spark(spark, rows, "spark_chain")


class Passes(StatefulProcessor):
    """Gives each row on."""

    def init(self, handle):
        pass

    def handleInputRows(self, key, rows, timerValues):  # noqa: N802, N803
        yield from rows


def test_event_times_keep_their_microseconds_between_stages(spark, kafka, topic_factory, tmp_path):
    """Each stage takes rows that are less than a millisecond above the watermark."""
    topic, results = topic_factory(2), topic_factory(PARTITIONS)
    rows, found = json_rows(spark, kafka, topic, "user string, at timestamp"), Topic(kafka, results)
    give = partial(
        impls.transform_with_state, statefulProcessor=Passes(), outputStructType="user string, at timestamp",
        outputMode="append", timeMode="eventtime", eventTimeColumnName="at",
    )  # fmt: skip

    def by_user(frame):
        return frame.select("user", "at", "partition", "offset").withWatermark("at", "0 seconds").groupBy("user")

    stages = [impls.Stage(name, give, 2, "user string, at timestamp", select=by_user) for name in ("one", "two")]
    sent_times = [f"2026-01-01T00:00:{second:02}.000{us:03}Z" for second in range(4) for us in (0, 1, 999)]
    with impls.chain(
        rows, stages, name=topic.replace(".", "-"), bootstrap=kafka, state_dir=tmp_path / "state",
        results=impls.Output(kafka, results, PARTITIONS, micros=True), checkpoint=tmp_path / "checkpoint", bins=16,
    ):  # fmt: skip
        for number, at in enumerate(sent_times):
            producer_for(kafka).produce(topic, json.dumps({"user": f"u{number}", "at": at}), partition=0)
            assert producer_for(kafka).flush(30) == 0
            await_true(lambda number=number: len(found.read()) == number + 1, f"row {number} has gone through")
    assert sorted(row["at"] for _, row in found.last.values()) == sent_times
