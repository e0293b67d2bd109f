"""The example in the README: a user's own operator, rescaled while it runs."""

import json

import pytest
from averages import running_average
from topics import json_rows, producer_for

pytestmark = pytest.mark.spark


def test_a_running_average_survives_a_rescale(spark, kafka, topic_factory, tmp_path, results_of):
    import impls
    from impls.worker.output import Output

    source, sink = topic_factory(2), topic_factory(4)
    producer = producer_for(kafka)

    def send(amount: float) -> None:
        for user in range(20):
            producer.produce(source, json.dumps({"user": f"u{user}", "amount": amount}))
        producer.flush(10)

    send(10.0)
    with impls.stream(
        json_rows(spark, kafka, source, "user string, amount double"),
        key="user",
        operator=running_average(),
        results=Output(kafka, sink, 4),
        state_dir=tmp_path / "state",
        checkpoint=tmp_path / "checkpoint",
        workers=2,
        bins=16,
    ) as query:
        results_of(sink).wait_for(20, "the first averages")
        query.rescale(workers=4)
        send(20.0)
        averages = results_of(sink).wait_for(40, "the averages after the rescale")
        assert query.await_migration(60)
        assert query.status()["workers"] == 4
    seen: dict[str, list[float]] = {}
    for value in map(json.loads, averages):
        seen.setdefault(value["user"], []).append(value["average"])
    assert seen == {f"u{user}": [10.0, 15.0] for user in range(20)}


def test_its_code_changes_while_it_runs(spark, kafka, topic_factory, tmp_path, results_of):
    import impls
    from impls.operators import Filter, StatefulMap
    from impls.worker.output import Output

    class AverageAndMost(StatefulMap):
        columns = ("amount",)

        def update(self, key, record, state):
            count, total, most = state or (0, 0.0, 0)
            count, total, most = count + 1, total + record["amount"], max(most, record["amount"])
            return (count, total, most), {"user": key.decode(), "average": total / count, "most": most}

    source, sink = topic_factory(2), topic_factory(4)
    producer = producer_for(kafka)

    def send(amount: float) -> None:
        producer.produce(source, json.dumps({"user": "u", "amount": amount}))
        producer.flush(10)

    with impls.stream(
        json_rows(spark, kafka, source, "user string, amount double"), key="user", operator=running_average(),
        results=Output(kafka, sink, 4), state_dir=tmp_path / "state", checkpoint=tmp_path / "checkpoint",
        workers=2, bins=16,
    ) as query:  # fmt: skip
        send(200.0)
        results_of(sink).wait_for(1, "the first average")
        change = query.insert(Filter("large", lambda row: row["amount"] > 100, ("amount",)))
        assert query.await_change(change, 60)["state"] == "done"
        send(50.0)
        change = query.replace(AverageAndMost(), migrate=lambda state: (*state, 0))
        assert query.await_change(change, 60)["state"] == "done"
        query.await_change(query.remove("large"), 60)
        send(100.0)
        values = [json.loads(value) for value in results_of(sink).wait_for(2, "the average under the new code")]
        assert [version["bins"] for version in query.pipeline()] == [0, 0, 0, 16]
    assert values == [{"user": "u", "average": 200.0}, {"user": "u", "average": 150.0, "most": 100.0}]
