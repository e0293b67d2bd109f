"""State is read from the checkpoint of a query that runs in Spark, while it moves and when it has ended."""

import json
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from averages import running_average
from pipeline import await_true
from pyspark.sql import Row
from topics import json_rows, producer_for

import impls

ROOT = Path(__file__).parents[2]
USERS = 20
pytestmark = pytest.mark.spark


def command(*options: object) -> str:
    words = [sys.executable, "-P", "-m", "invoke", "state", *map(str, options)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def applied(epochs: list[Any]) -> int:
    return sum(report.records for record in epochs for report in record.reports)


@pytest.mark.capability
def test_state_is_read_while_a_query_moves_it_and_afterwards(spark, kafka, topic_factory, tmp_path, results_of):
    source, sink, checkpoint = topic_factory(2), topic_factory(4), tmp_path / "checkpoint"
    users = [f"u{user}" for user in range(USERS)]
    producer, epochs = producer_for(kafka), []

    def send(amount: float) -> None:
        for user in range(USERS):
            producer.produce(source, json.dumps({"user": f"u{user}", "amount": amount}))
        producer.flush(10)

    send(10.0)
    with impls.stream(
        json_rows(spark, kafka, source, "user string, amount double"), key="user", operator=running_average(),
        results=impls.Output(kafka, sink, 4), state_dir=tmp_path / "state", checkpoint=checkpoint, workers=2, bins=16,
        mechanism="megaphone-fluid", on_epoch=epochs.append,
    ) as query:  # fmt: skip
        await_true(lambda: applied(epochs) == USERS, "the end of the epoch with the first records")
        query.rescale(workers=4)
        with query.state() as cut:
            moving = cut.to_pandas()
            send(20.0)
            results_of(sink).wait_for(2 * USERS, "the averages after the rescale")
            rows = cut.to_spark(spark, partitions=3).collect()
            assert cut.to_pandas().equals(moving), "the query has gone on, the cut has not"
        assert {row.key: row.value for row in rows} == {f'"u{user}"': "[1,10.0]" for user in range(USERS)}
        with pytest.raises(impls.UsageError, match=f"The cut of epoch {cut.epoch} is closed"):
            cut.to_pandas()
        while not query.await_migration(0):  # the state is in the one place or in the other
            assert [state.value[0] in {1, 2} for state in query.get_many(users)] == [True] * USERS
        assert query.get("u7").value == [2, 30.0]
        assert not query.get("nobody")
        one = command(checkpoint, "--key", "u7")
        assert "[2,30.0]" in one
        assert "1 rows as of the last commit" in one
        assert "The key nobody has no state as of" in command(checkpoint, "--key", "nobody")
        with pytest.raises(impls.UsageError, match="keys are strings, not 7"):
            query.get(7)
        with impls.cut_of(checkpoint) as cut:
            assert len(cut.to_pandas()) == USERS
        last = query.state()
        assert "20 rows of 20 keys at the end of epoch" in command(checkpoint)
    with pytest.raises(impls.UsageError, match="has ended: impls"):
        query.state()
    assert dict(zip(*last.to_pandas()[["key", "value"]].T.values, strict=True)) == {user: [2, 30.0] for user in users}
    assert dict(zip(moving.key, moving.value, strict=True)) == {f"u{user}": [1, 10.0] for user in range(USERS)}

    lines = [json.loads(line) for line in command(checkpoint, "--json").splitlines()]
    assert {line["key"]: line["value"] for line in lines} == {f"u{user}": [2, 30.0] for user in range(USERS)}
    one = command(checkpoint, "--key", "u7")
    assert "[2,30.0]" in one
    assert "1 rows of 1 keys" in one
    assert "The key nobody has no state" in command(checkpoint, "--key", "nobody")
    assert "20 rows of 20 keys" in command(checkpoint, "--limit", 3)
    last = impls.read_state(checkpoint).attrs["epoch"]
    assert last > moving.attrs["epoch"]
    assert "0 new, 0 gone, 0 changed" in command(checkpoint, "--against", last)

    command(checkpoint, "--into", tmp_path / "out")
    assert pq.read_table(tmp_path / "out" / "state.parquet").num_rows == USERS


def test_aggregates_of_spark_columns_are_read_with_their_keys(spark, kafka, topic_factory, tmp_path, results_of):
    source, sink = topic_factory(2), topic_factory(4)
    producer = producer_for(kafka)
    for n in range(30):
        producer.produce(source, json.dumps({"user": f"u{n % 3}", "place": n % 2, "price": f"{n}.25"}))
    producer.flush(10)
    rows = json_rows(spark, kafka, source, "user string, place int, price decimal(6,2)")
    with impls.aggregate(
        rows, ["user", "place"], {"n": "count(*)", "most": "max(price)"}, results=impls.Output(kafka, sink, 4),
        state_dir=tmp_path / "state", checkpoint=tmp_path / "checkpoint", workers=2, bins=16,
    ) as query:  # fmt: skip
        results_of(sink).wait_for(6, "the first counts")
        assert query.get({"user": "u1", "place": 0}).value == Row(n=5, most=Decimal("28.25"))
        assert '"n":5' in command(tmp_path / "checkpoint", "--key", '{"user": "u1", "place": 0}')
    frame = impls.read_state(tmp_path / "checkpoint")
    assert set(frame.key) == {Row(user=f"u{user}", place=place) for user in range(3) for place in range(2)}
    counts = {(key.user, value.n) for key, value in zip(frame.key, frame.value, strict=True)}
    assert counts == {(f"u{user}", 5) for user in range(3)}
