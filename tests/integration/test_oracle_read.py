"""The oracle against a real broker: what was sent is what is read, and a run folder gets its verdict."""

import json
import logging
import struct

import histories
import numpy as np
import pytest
from confluent_kafka import Producer

from harness.oracle.columns import OracleError
from harness.oracle.nexmark.check import read_events
from harness.oracle.read import read_records, read_results, result_partitions
from harness.oracle.run import CheckedRun, check_run
from impls.protocol.plan import EpochPlan, Pull, WrittenPlan
from impls.worker.results import NUMBER


def _columns(columns):
    return columns.table().to_pydict()


def _send(bootstrap, rows):
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": "true"})
    for topic, partition, key, value, headers in rows:
        producer.produce(topic, value, key, partition, headers=headers)
    assert producer.flush(30) == 0


@pytest.fixture
def sent(kafka, topic_factory):
    """Sends a history to two new topics; returns their names."""

    def send(history):
        topics = topic_factory(histories.INPUTS), topic_factory(histories.OUTPUTS)
        inputs = history.records.table().to_pylist()
        results = history.results.table().to_pylist()
        rows = [(topics[0], r["partition"], None, b"%016d%016d" % (r["key"], r["scheduled_us"]), []) for r in inputs]
        for r in results:
            number = NUMBER.pack(7, r["worker"], r["generation"], r["epoch"], r["index"], r["commit"])
            key, value = struct.pack(">q", r["key"]), struct.pack("<q", r["count"])
            rows.append((topics[1], r["partition"], key, value, [("n", number)]))
        _send(kafka, rows)
        return topics

    return send


def test_large_answers_of_the_broker_are_read_at_once(kafka, topic_factory, caplog):
    """What a client has fetched goes by `fetch_max_bytes`, 64 MiB; a connection that refuses it is closed."""
    topic, sent = topic_factory(2), 12
    _send(
        kafka, [(topic, n % 2, None, json.dumps({"id": n, "extra": "x" * 900_000}).encode(), []) for n in range(sent)]
    )
    with caplog.at_level(logging.WARNING, "kafka"):
        events = read_events(kafka, topic, deadline_s=60)
    assert sorted(json.loads(value)["id"] for value in events.value) == list(range(sent))
    assert [record.getMessage() for record in caplog.records if record.name.startswith("kafka")] == []


def _run_folder(folder, history, topic):
    """Writes what the query and the harness leave of the history's run; returns (run folder, checkpoint)."""
    checkpoint, run = folder / "checkpoint", folder / "run"
    for name in (checkpoint / "offsets", checkpoint / "commits", run):
        name.mkdir(parents=True)
    at = dict.fromkeys(range(histories.INPUTS), 0)
    for epoch in range(histories.EPOCHS):
        now = history.ranges.take(history.ranges.epoch == epoch)
        at |= dict(zip(now.partition.tolist(), now.end.tolist(), strict=True))
        line = json.dumps({topic: {str(p): end for p, end in at.items()}})
        (checkpoint / "offsets" / str(epoch)).write_text(f"v1\n{{}}\n{line}\n{epoch}")
        (checkpoint / "commits" / str(epoch)).write_text("v1\n{}")
    plans = [_plan(history, epoch) for epoch in range(histories.EPOCHS)]
    kinds = ("command", "migration_begin", "migration_end")
    events = [{"at_us": 0, "kind": kind, "id": "one", "epoch": histories.MOVED_AT} for kind in kinds]
    for name, lines in {"plan": plans, "events": events}.items():
        (run / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (run / "generator.json").write_text(json.dumps({"records": len(history.records)}))
    return run, checkpoint


def _plan(history, epoch):
    routing = np.arange(histories.BINS, dtype=np.int32) * histories.WORKERS // histories.BINS
    moved = history.moves.bin.tolist()
    if epoch >= histories.MOVED_AT:
        routing[moved] = 3
    pulls = tuple(Pull(b, 0, 3) for b in moved) if epoch == histories.MOVED_AT else ()
    return WrittenPlan(epoch, 1, histories.WORKERS, EpochPlan(routing, pulls)).to_json()


def test_topics_are_read_whole(kafka, sent):
    history = histories.make(1)
    topics = sent(history)
    assert _columns(read_records(kafka, topics[0])) == _columns(history.records)
    assert _columns(read_results(kafka, topics[1])) == _columns(history.results)
    assert result_partitions(kafka, topics[1]) == histories.OUTPUTS


def test_empty_topic_has_no_records(kafka, topic_factory):
    assert len(read_records(kafka, topic_factory(2))) == 0


def test_message_of_another_form_is_refused(kafka, topic_factory):
    topic = topic_factory(1)
    _send(kafka, [(topic, 0, b"8 bytes.", b"8 bytes.", [])])
    with pytest.raises(OracleError, match="not 32 bytes long"):
        read_records(kafka, topic)
    with pytest.raises(OracleError, match=r":0 has no header 'n'"):
        read_results(kafka, topic)


@pytest.mark.parametrize(("fault", "verdict", "kind"), [(None, "valid", None), ("lost bin", "invalid", "lost")])
def test_run_gets_its_verdict(kafka, sent, tmp_path, fault, verdict, kind):
    history = histories.make(2, fault=fault)
    topics = sent(history)
    run, checkpoint = _run_folder(tmp_path, history, topics[0])
    answer = check_run(CheckedRun(kafka, run, histories.bin_of, topics=topics), checkpoint)
    assert answer["verdict"] == verdict, answer["reasons"]
    assert (answer["records"], answer["crossed"] > 0) == (len(history.records), True)
    assert kind is None or answer[kind] > 0
    assert json.loads((run / "oracle.json").read_text()) == answer
    assert [file.name for file in run.glob(".*")] == []


def test_topic_that_does_not_exist_is_unknown(kafka, tmp_path):
    run, checkpoint = _run_folder(tmp_path, histories.make(2), "nowhere")
    answer = check_run(CheckedRun(kafka, run, histories.bin_of, topics=("nowhere", "out")), checkpoint)
    assert answer["verdict"] == "unknown"
    assert "'nowhere' does not exist" in answer["reasons"][0]
    assert json.loads((run / "oracle.json").read_text())["verdict"] == "unknown"
