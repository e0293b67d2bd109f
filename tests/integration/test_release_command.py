"""`./inv release` from a process of its own: what was released, and Spark's own query goes on behind it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from native_query import native_session
from pipeline import await_true
from topics import json_rows, producer_for

import impls

pytestmark = [pytest.mark.spark, pytest.mark.lengthy, pytest.mark.timeout(400)]
ROOT = Path(__file__).parents[2]
QUERY = """
def totals(spark):
    source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", "{kafka}")
    rows = source.option("subscribe", "{topic}").option("startingOffsets", "earliest").load()
    return rows.selectExpr("from_json(string(value), 'user string').user AS user").groupBy("user").count()
"""


def send(producer, topic, number):
    for n in range(number):
        producer.produce(topic, json.dumps({"user": f"u{n % 100}"}))
    producer.flush(10)


@pytest.mark.capability
def test_the_command_makes_a_checkpoint_with_which_spark_goes_on(spark, kafka, topic_factory, tmp_path, results_of):
    topic, sink, producer = topic_factory(2), topic_factory(4), producer_for(kafka)
    send(producer, topic, 300)
    where = {"state_dir": tmp_path / "state", "checkpoint": tmp_path / "ours", "results": impls.Output(kafka, sink, 4)}
    with impls.aggregate(
        json_rows(spark, kafka, topic, "user string"), ["user"], {"n": "count(*)"}, workers=2, bins=16, **where
    ) as query:  # fmt: skip
        results_of(sink).wait_for(100, "the count of each user")
        query.rescale(workers=3)
        assert query.await_migration(60)
        await_true(lambda: query.status()["queued"] == 0, "no record to wait")
    file = tmp_path / "native.py"
    file.write_text(QUERY.format(kafka=kafka, topic=topic))
    command = [sys.executable, "-P", "-m", "invoke", "release", str(tmp_path / "ours"), str(tmp_path / "theirs")]
    options = ["--query", f"{file}:totals", "--partitions", "3"]
    done = subprocess.run([*command, *options], cwd=ROOT, capture_output=True, timeout=360, check=False)
    assert done.returncode == 0, done.stderr.decode()
    first, folder = done.stdout.decode().splitlines()
    assert " was released into 3 partitions in " in first
    assert folder == str(tmp_path / "theirs")
    send(producer, topic, 100)
    rows, users = [], json_rows(native_session(spark), kafka, topic, "user string")
    writer = users.groupBy("user").count().writeStream.foreachBatch(lambda each, _: rows.extend(each.collect()))
    native = writer.outputMode("update").option("checkpointLocation", folder).trigger(availableNow=True).start()
    assert native.awaitTermination(120)
    assert {row["count"] for row in rows} == {4}
    assert len(rows) == 100
    again = subprocess.run([*command, *options], cwd=ROOT, capture_output=True, timeout=360, check=False)
    assert again.returncode == 2
    assert "is there already: name a new one" in again.stderr.decode()


def test_a_function_that_fails_ends_the_command_with_its_sentence(tmp_path):
    (tmp_path / "fails.py").write_text("def build(spark):\n    raise ValueError('no topic')\n")
    command = [sys.executable, "-P", "-m", "invoke", "release", "a", str(tmp_path / "b")]
    done = subprocess.run(
        [*command, "--query", f"{tmp_path}/fails.py:build"], cwd=ROOT, capture_output=True, timeout=120, check=False
    )
    assert done.returncode == 2
    assert "fails.py:build has failed: ValueError: no topic" in done.stderr.decode()
    assert not (tmp_path / "b").exists()
