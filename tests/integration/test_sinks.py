"""Results of each epoch as a DataFrame to a function, or to nothing; and what Spark's listeners hear of the query."""

import json
import logging
from pathlib import Path

import pytest
from foreach_process import totals
from pipeline import await_true
from pyspark.sql.streaming import StreamingQueryListener
from topics import json_rows, producer_for

import impls
from harness.live.top import top
from impls.errors import StateError
from impls.spark.compiled import METRICS, metrics_of
from impls.spark.source import epoch_begin

pytestmark = pytest.mark.spark
USERS = 30


def await_of(query, done, what):
    """Waits until done(); raises what the query has failed with."""
    await_true(lambda: query.await_end(0) or done(), what)


class Source:
    """Records numbered like their offsets, in a topic of one partition."""

    def __init__(self, spark, kafka, topic):
        self._producer, self.topic, self.sent = producer_for(kafka), topic, 0
        self.frame = json_rows(spark, kafka, topic, "user string, number long")

    def send(self, records):
        for number in range(self.sent, self.sent + records):
            self._producer.produce(self.topic, json.dumps({"user": f"u{number * 7 % USERS}", "number": number}))
        assert self._producer.flush(30) == 0
        self.sent += records

    def expected(self, checkpoint):
        """The rows of each epoch, from the offsets that Spark has noted."""
        rows, counts, epoch = {}, {}, 0
        while (end := epoch_begin(Path(checkpoint) / "spark", epoch + 1)) is not None:
            first = epoch_begin(Path(checkpoint) / "spark", epoch) if epoch else None
            begin = first[self.topic][0] if first else 0
            found = {}
            for number in range(begin, end[self.topic][0]):
                user = f"u{number * 7 % USERS}"
                counts[user] = counts.get(user, 0) + 1
                found[user] = (user, counts[user], number)
            if found:
                rows[epoch] = sorted(found.values())
            epoch += 1
        return rows


@pytest.fixture
def source(spark, kafka, topic_factory):
    return Source(spark, kafka, topic_factory(1))


@pytest.fixture
def start(source, tmp_path):
    """start(results) starts the query, or continues it."""

    def started(results, **more):
        return impls.stream(
            source.frame, key="user", operator=totals(), results=results, state_dir=tmp_path / "state",
            checkpoint=tmp_path / "checkpoint", workers=2, bins=16, **more,
        )  # fmt: skip

    return started


def _rows(frame):
    return sorted(tuple(row) for row in frame.collect())


@pytest.mark.capability
def test_a_function_gets_the_rows_of_each_epoch_across_a_rescale_and_again_after_it_has_failed(
    source, start, tmp_path, caplog
):
    calls, broken = [], []

    def take(frame, epoch):
        assert frame.columns == ["user", "n", "last"]
        calls.append((epoch, _rows(frame)))
        if broken:
            raise ValueError("the table is locked")

    def last():
        return max((row[2] for _, rows in calls for row in rows), default=-1)

    with start(impls.ForeachBatch(take)) as query:
        source.send(100)
        await_of(query, lambda: last() == 99, "the first rows")
        query.rescale(4)
        source.send(200)
        await_of(query, lambda: last() == 299, "the rows of the rescale")
        assert query.await_migration(60)
    before = len(calls)
    with caplog.at_level(logging.ERROR, "impls"):
        failing = start(impls.ForeachBatch(take))
        broken.append(True)
        source.send(100)
        assert failing.ended(90)
        failed = r"failed in epoch \d+ with ValueError: the table is locked\. Nothing is lost"
        with pytest.raises(StateError, match=failed):
            failing.stop()
    assert "The function of ForeachBatch failed in epoch" in caplog.text
    broken.clear()
    with start(impls.ForeachBatch(take)) as query:
        source.send(50)
        await_of(query, lambda: last() == 449, "the rows behind the failure")
    assert calls[before] == calls[before + 1], "the epoch that failed comes again, with the same rows"
    assert dict(calls) == source.expected(tmp_path / "checkpoint")
    assert [epoch for epoch, _ in calls] == sorted(epoch for epoch, _ in calls)
    assert len(calls) == len(dict(calls)) + 1, "no other epoch comes twice"


def test_a_frame_can_be_written_and_read_twice_within_its_epoch(source, start, tmp_path):
    counts = []

    def take(frame, epoch):
        frame.write.mode("overwrite").parquet(str(tmp_path / f"out/epoch={epoch}"))
        counts.append((frame.count(), frame.where("n > 0").count()))

    with start(impls.ForeachBatch(take)) as query:
        source.send(200)
        await_of(query, lambda: counts and _written(source, tmp_path) == 199, "what was written")
    assert all(first == second for first, second in counts)
    spark = source.frame.sparkSession
    read = spark.read.parquet(str(tmp_path / "out"))
    found = {}
    for row in read.collect():
        found.setdefault(row["epoch"], []).append((row["user"], row["n"], row["last"]))
    assert {epoch: sorted(rows) for epoch, rows in found.items()} == source.expected(tmp_path / "checkpoint")


def _written(source, folder):
    read = source.frame.sparkSession.read.parquet(str(folder / "out"))
    return read.selectExpr("max(last)").first()[0]


class Heard(StreamingQueryListener):
    """Keeps what a user's listener hears."""

    def __init__(self):
        self.progress = []

    def onQueryStarted(self, event):  # noqa: N802
        pass

    def onQueryProgress(self, event):  # noqa: N802
        self.progress.append(event.progress)

    def onQueryTerminated(self, event):  # noqa: N802
        pass


@pytest.mark.capability
def test_a_listener_and_top_see_a_migration_of_a_query_whose_results_go_nowhere(
    spark, source, start, tmp_path, capsys, caplog
):
    heard = Heard()
    spark.streams.addListener(heard)
    try:
        with caplog.at_level(logging.INFO, "impls"), start(None) as query:
            source.send(300)
            await_of(query, lambda: query.metrics()["records"] == 300, "the records")
            query.rescale(4)
            assert query.await_migration(60)
            moved = query.metrics()["moved_bytes"]
            assert top(str(tmp_path / "checkpoint"), once=True, as_json=True, interval=1.0) == 0
            shown = json.loads(capsys.readouterr().out)
            assert top(str(tmp_path / "checkpoint"), once=True, as_json=False, interval=1.0) == 0
            picture = capsys.readouterr().out
            epoch = query.status()["epoch"]
            await_of(query, lambda: heard.progress and heard.progress[-1].batchId > epoch, "the listener's next epoch")
    finally:
        spark.streams.removeListener(heard)
    rows = [metrics_of(progress) for progress in heard.progress if metrics_of(progress)]
    assert set(rows[-1]) == set(METRICS)
    assert len(rows) >= len(heard.progress) - 1, "before the first epoch there is nothing to report"
    last = rows[-1]
    assert (last["records"], last["results"] > 0, last["workers"], last["migrations"]) == (300, True, 4, 1)
    assert (last["moved_bytes"], last["moved_bins"], last["planned_bins"]) == (moved, 8, 8)
    assert [row["records"] for row in rows] == sorted(row["records"] for row in rows)
    assert shown["metrics"]["moved_bins"] == 8
    assert "last migration: rescale to 4 workers: done, 8 bins" in picture
    assert any("(rescale to 4 workers) begins with epoch" in message for message in caplog.messages)
    assert any(message.endswith("has ended behind epoch " + message.split()[-1]) for message in caplog.messages)
