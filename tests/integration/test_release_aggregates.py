"""Aggregates go back to Spark: byte for byte what was adopted, and groupBy().agg() goes on with what ran here."""

import json

import pytest
from clicks import Clicks
from native_processor import families_in
from native_query import native_session, run_native
from payments import TYPES, USERS, VALUES, Payments, aggregated
from pipeline import await_true
from pyspark.sql import functions as F  # noqa: N812

import impls
from impls.worker.output import Output

pytestmark = [pytest.mark.spark, pytest.mark.lengthy]
FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"
PAYMENTS = {"keys": ["user", "shop"], "values": VALUES}
CLICKS = {"keys": ["window", "user"], "values": {"n": "count(*)"}}


def counted(session, clicks):
    return clicks.frame(session).groupBy("window", "user").count()


class Taken:
    """Runs a streaming frame on all that there is, and has the rows that come."""

    def __init__(self):
        self.rows = []

    def run(self, frame, checkpoint, mode):
        writer = frame.writeStream.foreachBatch(self._take).outputMode(mode)
        query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        assert query.awaitTermination(120)
        return sorted(self.rows)

    def _take(self, frame, _batch):
        self.rows += [row.value for row in frame.select(F.to_json(F.struct("*")).alias("value")).collect()]


@pytest.mark.parametrize("version", ["1", "2"])
def test_aggregates_that_were_adopted_are_released_byte_for_byte(spark, kafka, topic_factory, tmp_path, version):
    session, stream = native_session(spark, **{FORMAT: version}), Payments(kafka, topic_factory(2))
    native = tmp_path / "a"
    stream.send(3)
    run_native(aggregated(session, stream), native)
    before, how = families_in(spark, native), {"bootstrap": kafka, "aggregates": VALUES, "types": TYPES, "bins": 16}
    impls.adopt(spark, native, tmp_path / "b", **how)
    released = impls.release(aggregated(session, stream), tmp_path / "b", tmp_path / "c", partitions=5)
    assert (released.epoch, released.partitions) == (0, 5)
    assert families_in(spark, tmp_path / "c") == before
    stream.send(2)
    rows = Taken().run(aggregated(session, stream), tmp_path / "c", "update")
    assert rows == Taken().run(aggregated(session, stream), native, "update")
    assert len(rows) == 2 * USERS


@pytest.mark.parametrize("mode", ["update", "append"])
def test_windows_that_ran_here_go_on_in_spark(spark, kafka, topic_factory, tmp_path, results_of, mode):
    clicks, sink, session = Clicks(kafka, topic_factory(2)), topic_factory(4), native_session(spark)
    clicks.send(range(26))
    with impls.aggregate(
        clicks.frame(spark), **CLICKS, output_mode=mode, results=Output(kafka, sink, 4), state_dir=tmp_path / "state",
        checkpoint=tmp_path / "ours", workers=2, bins=16,
    ) as query:  # fmt: skip
        results_of(sink).wait_for(6, "the windows from 0 and 10")
        query.rescale(workers=3)
        clicks.send(range(26, 40))
        results_of(sink).wait_for(9, "the window from 20 on")
        assert query.await_migration(60)
        await_true(lambda: query.status()["settled"], "the timers of the windows")
    run_native(counted(session, clicks), tmp_path / "undisturbed", mode)
    impls.release(counted(session, clicks), tmp_path / "ours", tmp_path / "theirs", output_mode=mode)
    assert families_in(spark, tmp_path / "theirs") == families_in(spark, tmp_path / "undisturbed")
    clicks.send([5, 15, 25], late=True)
    clicks.send(range(40, 70))
    rows = Taken().run(counted(session, clicks), tmp_path / "theirs", mode)
    assert rows == Taken().run(counted(session, clicks), tmp_path / "undisturbed", mode)
    assert {json.loads(row)["count"] for row in rows} == {10}


def test_what_cannot_be_released_is_refused_and_leaves_nothing(spark, kafka, topic_factory, tmp_path):
    session, stream = native_session(spark), Payments(kafka, topic_factory(2))
    other = Payments(kafka, topic_factory(2))
    for each in (stream, other):
        each.send(1)
    run_native(aggregated(session, stream), tmp_path / "native")
    how = {"bootstrap": kafka, "aggregates": VALUES, "types": TYPES, "bins": 16}
    impls.adopt(spark, tmp_path / "native", tmp_path / "ours", **how)
    into = tmp_path / "new" / "theirs"

    def refused(why, frame, ours="ours", **more):
        with pytest.raises(impls.UsageError, match=why):
            impls.release(frame, tmp_path / ours, into, **more)
        assert not into.parent.exists() or not list(into.parent.iterdir())

    frame = aggregated(session, stream)
    refused("There is no checkpoint of a query", frame, "nothing")
    with pytest.raises(impls.UsageError, match="folder of this host: name one, and s3a://bucket/theirs as its place"):
        impls.release(frame, tmp_path / "ours", "s3a://bucket/theirs")
    assert not (tmp_path / "nothing").exists()
    refused("The output mode 'complete' is unknown", frame, output_mode="complete")
    refused("at least 1 partition, not 0", frame, partitions=0)
    refused("has read the topic", aggregated(session, other))
    (tmp_path / "a b").mkdir()
    refused("name a folder without a blank", frame, scratch=str(tmp_path / "a b"))
    refused(r"There is no folder .*/none for the state", frame, scratch=str(tmp_path / "none"))
    payments = stream.frame(session)
    refused("has the aggregates count", payments.groupBy("user", "shop").count())
    refused(r"groups by shop int, user string", _swapped(session, stream))
    refused("has no stateful operator", payments.select("user"))
    refused("dropDuplicates", payments.dropDuplicates(["user"]))


def _swapped(session, stream):
    stream.frame(session).createOrReplaceTempView("swapped")
    return session.sql(
        "SELECT count(*) n, sum(amount) total, avg(price) mean, min(price) low, max(word) last, sum(fee) fees, "
        "avg(fee) fee_mean, sum(tax) taxes FROM swapped GROUP BY shop, user"
    )
