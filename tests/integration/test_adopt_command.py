"""`./inv adopt` from a process of its own: progress, what was adopted, and a checkpoint that is there whole."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from native_query import native_session, run_native
from topics import producer_for

pytestmark = [pytest.mark.spark, pytest.mark.lengthy, pytest.mark.timeout(400)]
ROOT = Path(__file__).parents[2]


@pytest.mark.capability
def test_the_command_makes_a_checkpoint_and_says_what_is_in_it(spark, kafka, topic_factory, tmp_path):
    topic, producer = topic_factory(2), producer_for(kafka)
    for n in range(300):
        producer.produce(topic, json.dumps({"user": f"u{n % 100}"}))
    producer.flush(10)
    session = native_session(spark)
    source = session.readStream.format("kafka").option("kafka.bootstrap.servers", kafka).option("subscribe", topic)
    rows = source.option("startingOffsets", "earliest").load()
    users = rows.selectExpr("from_json(string(value), 'user string').user AS user")
    native = tmp_path / "my data #1 [old] 100%20" / "a"
    run_native(users.groupBy("user").count(), native)
    command = [sys.executable, "-P", "-m", "invoke", "adopt", str(native), str(tmp_path / "b")]
    options = ["--bootstrap", kafka, "--aggregates", "count(*) AS n", "--bins", "16"]
    done = subprocess.run([*command, *options], cwd=ROOT, capture_output=True, timeout=360, check=False)
    assert done.returncode == 0, done.stderr.decode()
    first, folder = done.stdout.decode().splitlines()
    assert first.startswith("100 entries of state (")
    assert first.endswith("The query goes on behind batch 0 with epoch 1.")
    assert folder == str(tmp_path / "b")
    assert (tmp_path / "b" / "rescale" / "base.json").exists()
    again = subprocess.run([*command, *options], cwd=ROOT, capture_output=True, timeout=360, check=False)
    assert again.returncode == 2
    assert "is there already: name a new one" in again.stderr.decode()
