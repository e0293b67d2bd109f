"""NEXMark events through Spark: the projection reads what the queries say, and a query answers across a rescale."""

import json
from functools import partial

import pytest
from auctions import FROM_SCRATCH, ends, random_events, rows
from topics import producer_for

from impls.errors import UsageError
from impls.operators import HashCount
from impls.operators.nexmark import QUERIES, make
from impls.spark.columns import KEY, project

pytestmark = pytest.mark.spark


def as_json(event):
    return json.dumps({k: v for k, v in event.items() if k != "kind"} | {"scheduled_us": event["dateTime"]})


@pytest.fixture(scope="module")
def events():
    return random_events(3, 200)


@pytest.mark.parametrize("name", QUERIES)
def test_the_projection_filters_keys_and_names_as_the_query_says(spark, events, name):
    raw = [(0, i, bytearray(as_json(event).encode())) for i, event in enumerate(events)]
    df = spark.createDataFrame(raw, "partition int, offset long, value binary")
    query = make(name)
    found = [row.asDict() for row in project(df, query).orderBy("offset").collect()]
    expected = rows(name, events)
    assert len(found) == len(expected) > 0
    for row, (_, key, event) in zip(found, expected, strict=True):
        assert row[KEY] == key
        whole = {**event, "value": bytearray(as_json(event).encode())}
        assert {c: row[c] for c in query.columns} == {c: whole.get(c) for c in query.columns}


def test_another_operator_has_no_projection(spark):
    with pytest.raises(UsageError, match="HashCount is not a NEXMark query"):
        project(spark.range(1), HashCount())


@pytest.mark.capability("q5")
@pytest.mark.parametrize("name", ["q5", "q16"])
def test_a_query_of_two_stages_answers_across_a_rescale_of_each(
    spark, kafka, topic_factory, tmp_path, results_of, events, name
):
    import impls
    from impls.worker.output import Output

    source, sink = topic_factory(2), topic_factory(4)
    producer = producer_for(kafka)

    def send(part):
        for event in part:
            producer.produce(source, as_json(event), partition=event["dateTime"] % 2)
        assert producer.flush(10) == 0

    raw = spark.readStream.format("kafka").option("kafka.bootstrap.servers", kafka).option("subscribe", source)
    query = make(name, partitions=2, disorder=60_000)  # two partitions of a few events are far apart
    then, expected = QUERIES[name].second, FROM_SCRATCH[name](events)
    stages = [
        impls.Stage("first", partial(impls.stream, key=KEY, operator=query, time="scheduled_us"), 2, then.schema()),
        impls.Stage("second", partial(impls.stream, key=then.key, operator=then()), 2),
    ]
    send(events[:100])
    with impls.chain(
        project(raw.option("startingOffsets", "earliest").load(), query), stages, name=sink, bootstrap=kafka,
        results=Output(kafka, sink, 4), state_dir=tmp_path / "state", checkpoint=tmp_path / "checkpoint", partitions=4,
        bins=16, mechanism="meces",
    ) as running:  # fmt: skip
        running.rescale("first", workers=4)
        send(events[100:])
        running.rescale("second", workers=3)
        assert running.await_migration(60)
        send([{**event, "dateTime": event["dateTime"] + n} for event in ends(name) for n in range(2)])
        answers = [json.loads(value) for value in results_of(sink).wait_for(len(expected), "all answers")]
        assert [status["workers"] for status in running.status().values()] == [4, 3]
    order = lambda answer: json.dumps(answer, sort_keys=True)  # noqa: E731
    assert sorted(answers, key=order) == sorted(expected, key=order)
