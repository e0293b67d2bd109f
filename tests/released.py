"""The queries whose checkpoints each release leaves in tests/releases, and what continues them.

At a release, `python tests/released.py tests/releases/VERSION` makes its folder.
"""

import json
import shutil
import sys
import time
from functools import partial
from pathlib import Path

from confluent_kafka import Producer

import impls
from impls.driver.epochs import EpochRecord
from impls.driver.handle import StreamHandle
from impls.operators import KeyedProcess, StatefulMap
from impls.operators.base import Operator
from impls.protocol.eventtime import EventTime
from impls.worker.output import Output

RELEASES = Path(__file__).parent / "releases"
USERS, PARTITIONS, GAP = 20, 2, 30


class Totals(StatefulMap):
    """How many amounts a user has, and their sum."""

    columns = ("amount",)

    def update(self, key, record, state):
        count, total = state or (0, 0)
        return (count + 1, total + record["amount"]), {"user": key.decode(), "count": count + 1}


class Sessions(KeyedProcess):
    """The amounts of a user until GAP seconds have passed without one; timers are in the checkpoint."""

    event_time = EventTime("at", partitions=PARTITIONS)
    columns = ("at", "amount")

    def record(self, record, one):
        count, until = one.value() or (0, None)
        if until is not None:
            one.cancel_timer(until)
        one.set_value((count + 1, one.time + GAP))
        one.set_timer(one.time + GAP)

    def timer(self, one):
        one.emit({"user": one.key.decode(), "count": one.value()[0]})
        one.set_value(None)


OPERATORS: dict[str, type[Operator]] = {"totals": Totals, "sessions": Sessions}


def send(kafka: str, topic: str, numbers: range) -> None:
    """Sends a record of each number for each user; behind those of who continues one far ahead, for the watermark."""
    producer = Producer({"bootstrap.servers": kafka})
    for number in numbers:
        for user in range(USERS):
            row = {"user": f"u{user}", "amount": number, "at": 10 * number}
            producer.produce(topic, json.dumps(row), partition=user % PARTITIONS)
    if numbers.start:
        for at in range(PARTITIONS):
            producer.produce(topic, json.dumps({"user": "last", "amount": 0, "at": 10_000}), partition=at)
    assert producer.flush(30) == 0


def query(spark, kafka: str, name: str, topic: str, sink: str, folder: Path, on_epoch=None) -> StreamHandle:
    """Starts or continues a query whose checkpoint is in FOLDER/checkpoint, with an empty state folder."""
    rows = spark.readStream.format("kafka").option("kafka.bootstrap.servers", kafka).option("subscribe", topic)
    rows = rows.option("startingOffsets", "earliest").load()
    parsed = rows.selectExpr("from_json(string(value), 'user string, amount long, at long') r", "partition", "offset")
    return impls.stream(
        parsed.select("r.*", "partition", "offset"), key="user", operator=OPERATORS[name](),
        results=Output(kafka, sink, 4), state_dir=folder / "state", checkpoint=folder / "checkpoint", workers=2,
        bins=16, on_epoch=on_epoch, py_files=[__file__],
    )  # fmt: skip


def input_of(release: str, name: str) -> str:
    """Returns the topic that a release's query reads, which the checkpoint names."""
    return f"release-{release}-{name}"


def main(target: Path) -> None:
    """Makes the checkpoints of this version: three records of each user, moved from two workers to three."""
    from harness.lab.bringup import bring_up, open_session

    folder = target / "work"
    topics = {input_of(target.name, name): PARTITIONS for name in OPERATORS} | {f"{name}-sink": 4 for name in OPERATORS}
    with bring_up(folder, session=partial(open_session, "release", 4), topics=topics) as here:
        for name in OPERATORS:
            topic, sink, epochs = input_of(target.name, name), f"{name}-sink", []
            with query(here.spark, here.broker.bootstrap, name, topic, sink, folder / name, epochs.append) as running:
                send(here.broker.bootstrap, topic, range(3))
                await_records(epochs, 3 * USERS)
                running.rescale(workers=3)
                assert running.await_migration(60)
            shutil.copytree(folder / name / "checkpoint", target / name)
    shutil.rmtree(folder)


def await_records(epochs: list[EpochRecord], number: int) -> None:
    """Returns when epochs have taken a number of records; raises AssertionError if they have not in a minute."""
    end = time.monotonic() + 60
    while (taken := sum(report.records for epoch in epochs for report in epoch.reports)) < number:
        assert time.monotonic() < end, f"{taken} of {number} records were taken in 60 s"
        time.sleep(0.1)


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
