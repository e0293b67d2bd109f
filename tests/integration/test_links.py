"""Results of one query as the input of another: each once and in order, whatever happens to either of them."""

import shutil

import chained
import linked
import linked_operators
import pytest
from chained import Chained
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from linked import Linked, scenario
from linked_operators import Follow, Times
from pipeline import await_true
from pyspark.sql.functions import expr
from scenarios import in_real_time
from topics import json_rows, producer_for

import impls
from harness.lab.topics import create_topics
from impls.errors import StateError, UsageError
from impls.worker.results import HEADER, Number, numbers_of

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.fixture
def topics(topic_factory):
    return [topic_factory(2), topic_factory(linked.PARTITIONS), topic_factory(linked.PARTITIONS)]


@pytest.mark.capability
def test_each_result_is_seen_once_by_the_next_query_whatever_happens_to_either(spark, kafka, topics, tmp_path):
    assert scenario(Linked(spark, kafka, topics, tmp_path)) > 100


def test_the_same_in_real_time(kafka, topics, tmp_path):
    assert int(in_real_time(linked.__file__, kafka, topics, tmp_path).split()[-1]) > 100


def test_a_chain_closes_each_window_once_whatever_happens_to_its_stages(spark, kafka, topics, tmp_path):
    chained.scenario(Chained(spark, kafka, topics[:2], tmp_path))


@pytest.mark.capability
def test_a_chain_in_real_time(kafka, topics, tmp_path):
    in_real_time(chained.__file__, kafka, topics[:2], tmp_path)


def test_a_stage_reads_two_others(spark, kafka, topics, tmp_path):
    chained.joined(Chained(spark, kafka, topics[:2], tmp_path, name="joined"))


def test_a_stage_reads_two_others_in_real_time(kafka, topics, tmp_path):
    in_real_time(chained.__file__, kafka, topics[:2], tmp_path, "joined")


def test_a_stage_with_event_time_reads_no_input_beside_another(spark, kafka, topics, tmp_path):
    chain = Chained(spark, kafka, topics[:2], tmp_path, name="mixed", counting=("counts",), beside=("input",))
    with pytest.raises(UsageError, match="reads another stage, and beside it an input of the chain"):
        chain.start()


def test_a_chain_that_begins_reads_no_results_of_another_one(kafka, topics, tmp_path):
    chain = Chained(None, kafka, topics[:2], tmp_path, name=topics[0].replace(".", "-"))
    create_topics(kafka, {f"{chain.name}.counts": linked.PARTITIONS})
    producer_for(kafka).produce(f"{chain.name}.counts", b"{}", partition=0)
    assert producer_for(kafka).flush(30) == 0
    with pytest.raises(UsageError, match=rf"The topic {chain.name}.counts has results of another chain"):
        chain.start()
    lose_first_result(kafka, f"{chain.name}.counts")
    with pytest.raises(UsageError, match=r"has results of another chain, or had some"):
        chain.start()


def test_a_stage_that_has_read_nothing_yet_needs_the_first_results(kafka, topics, tmp_path):
    chain = Chained(None, kafka, topics[:2], tmp_path, name=topics[0].replace(".", "-"))
    create_topics(kafka, {f"{chain.name}.counts": linked.PARTITIONS})
    touched(tmp_path / "checkpoint/highest/spark/sources/0/0")
    with pytest.raises(UsageError, match=r"The checkpoint of the stage counts is gone from .* and highest has its"):
        chain.start()
    touched(tmp_path / "checkpoint/counts/rescale/query.json")
    shutil.rmtree(tmp_path / "checkpoint/highest")
    producer_for(kafka).produce(f"{chain.name}.counts", b"{}", partition=0)
    assert producer_for(kafka).flush(30) == 0
    lose_first_result(kafka, f"{chain.name}.counts")
    with pytest.raises(UsageError, match=r"no longer has the first results of counts, which highest has not read"):
        chain.start()


def touched(path):
    path.parent.mkdir(parents=True)
    path.write_text("")


def lose_first_result(kafka, topic):
    """As retention does."""
    admin = AdminClient({"bootstrap.servers": kafka})
    (deleted,) = admin.delete_records([TopicPartition(topic, 0, 1)]).values()
    assert deleted.result(30).low_watermark == 1


def test_a_chain_reads_all_of_each_others_results(tmp_path):
    with pytest.raises(UsageError, match=r"leave startingOffsets out of source"):
        impls.chain(None, [], name="c", bootstrap="b", results=None, state_dir=tmp_path, checkpoint=tmp_path,
                    source={"startingOffsets": "latest"})  # fmt: skip


@pytest.fixture
def given(tmp_path):
    """What the queries of a test have in common."""
    return {
        "key": "name", "results": None, "state_dir": tmp_path / "state", "checkpoint": tmp_path / "one", "workers": 2,
        "bins": 16, "py_files": [linked_operators.__file__],
    }  # fmt: skip


def test_what_cannot_be_read_is_refused_in_a_sentence(spark, kafka, topics, tmp_path, given):
    output = impls.Output(kafka, topics[1], linked.PARTITIONS)
    with pytest.raises(UsageError, match="a field 'KEY'"):
        impls.results_of(spark, output, "KEY string")
    with pytest.raises(UsageError, match="has no columns"):
        impls.results_of(spark, output, "long")
    frame, given = impls.results_of(spark, output, "name long, n long"), {**given, "operator": Follow("")}
    with pytest.raises(UsageError, match="which hides which of them are repeats"):
        impls.stream(frame.dropDuplicates(), **given)
    with pytest.raises(UsageError, match="which hides which of them are repeats"):
        impls.stream(frame.join(frame.selectExpr("name AS other"), expr("name = other")), **given)
    beside = spark.readStream.format("rate").load().selectExpr("value AS name", "value AS n")
    with pytest.raises(UsageError, match="beside a source that is not Kafka"):
        impls.stream(frame.select("name", "n").union(beside), **given)
    redis = {"mechanism": "external-state", "options": {"redis": "redis://127.0.0.1:1/0"}}
    with pytest.raises(UsageError, match="does not tell repeats"):
        impls.stream(frame, **redis, **given)
    producer_for(kafka).produce(topics[1], b"{", partition=0)
    producer_for(kafka).flush(30)
    query = impls.stream(frame, **given)
    with pytest.raises(StateError, match=rf"{topics[1]}, partition 0, offset 0 has no number, and so is no result"):
        query.await_end(60)
    plain = json_rows(spark, kafka, topics[1], "name long, n long")
    with pytest.raises(UsageError, match="linked=True, not None"):
        impls.stream(plain, **given)


def test_a_topic_read_twice_counts_twice_and_what_is_no_result_is_set_aside(spark, kafka, topics, given):
    output, producer = impls.Output(kafka, topics[1], linked.PARTITIONS), producer_for(kafka)
    numbers = [*numbers_of(Number(1, 0, 1, 7, 0), 30), *numbers_of(Number(1, 0, 1, 8, 0), 30)]
    for number in [*numbers, *numbers[20:]]:
        producer.produce(topics[1], b'{"name": 5}', partition=1, headers={HEADER: number})
    producer.produce(topics[1], b"neither a result nor JSON", partition=1)
    assert producer.flush(30) == 0
    once, again = (impls.results_of(spark, output, "name long").select("name") for _ in range(2))
    given |= {"results": impls.Output(kafka, topics[2], linked.PARTITIONS), "operator": Times(), "on_error": "skip"}
    query, results = impls.stream(once.union(again), **given), linked.Topic(kafka, topics[2])
    await_true(lambda: results.read() and query.status()["refused"] == 2, "both readings of the topic", 60)
    query.stop()
    assert [last for _, last in results.read().values()] == [{"times": 2 * len(numbers)}]
