"""A native aggregation is stopped, adopted and goes on here: over both of them every record counts exactly once."""

import json
import shutil

import pytest
from native_query import HDFS, ROCKSDB, files_below, native_session, run_native, uncommit
from payments import SHOPS, TYPES, USERS, VALUES, Payments, aggregated

pytestmark = pytest.mark.spark


def await_rows(reader, expected):
    """Waits until the last row of each key is the one expected; fails when no further row comes."""
    rows, number = {}, len(expected)
    while rows != expected:
        values = reader.wait_for(number, f"the rows that are still others than {rows}")
        rows = {(row.get("user"), row["shop"]): row for row in map(json.loads, values)}
        number = len(values) + 1


WITH_IDS = {  # what Spark's offline repartition asks for
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.stateStore.checkpointFormatVersion": "2",
}


@pytest.mark.parametrize(("provider", "more"), [(ROCKSDB, {}), (ROCKSDB, WITH_IDS), (HDFS, {})])
def test_a_native_aggregation_goes_on_here(spark, kafka, topic_factory, tmp_path, results_of, provider, more):
    import impls
    from impls.worker.output import Output

    stream, sink, native = Payments(kafka, topic_factory(2)), topic_factory(4), tmp_path / "native"
    session = native_session(spark, provider, **more)
    for _ in range(3):
        stream.send(3)
        run_native(aggregated(session, stream), native)
    last = uncommit(native)
    before = files_below(native)
    told = []
    adopted = impls.adopt(
        spark, native, tmp_path / "ours", bootstrap=kafka, aggregates=VALUES, types=TYPES, bins=16, workers=2,
        tell=lambda done, total: told.append((done, total)),
    )  # fmt: skip
    assert (adopted.batch, adopted.planned, adopted.entries) == (last - 1, True, USERS * len(SHOPS))
    assert files_below(native) == before
    stream.send(1)
    with impls.aggregate(
        stream.frame(spark), ["user", "shop"], VALUES, results=Output(kafka, sink, 4), state_dir=tmp_path / "state",
        checkpoint=tmp_path / "ours", workers=2, bins=16,
    ) as query:  # fmt: skip
        results_of(sink).wait_for(USERS * len(SHOPS), "the first rows")
        query.rescale(workers=4)
        stream.send(2)
        assert query.await_migration(60)
        await_rows(results_of(sink), stream.expected())
        assert query.status()["epoch"] > adopted.batch
        assert query.status()["workers"] == 4


def test_what_cannot_be_adopted_is_refused_and_leaves_nothing(spark, kafka, topic_factory, tmp_path):
    import impls

    stream, session = Payments(kafka, topic_factory(2)), native_session(spark)
    stream.send(1)
    how = {"bootstrap": kafka, "aggregates": VALUES, "bins": 16}
    distinct = stream.frame(session).select("user").dropDuplicates(["user"])
    run_native(distinct, tmp_path / "distinct")
    run_native(aggregated(session, stream), tmp_path / "native")
    run_native(stream.frame(session).groupBy().count(), tmp_path / "no-key")
    run_native(stream.frame(session).rollup("user", "shop").count(), tmp_path / "rollup")
    ours = tmp_path / "new" / "ours"

    def refused(why, native="native", **other):
        with pytest.raises(impls.UsageError, match=why):
            impls.adopt(spark, tmp_path / native, ours, **{**how, **other})
        assert not ours.parent.exists() or not list(ours.parent.iterdir())

    refused("dropDuplicates, which cannot be adopted", "distinct")
    refused(r"groupBy\(\) without a key, which cannot be adopted", "no-key", aggregates={"n": "count(*)"})
    refused("rollup, cube or grouping sets, which cannot be adopted", "rollup", aggregates={"n": "count(*)"})
    refused("which is not what", aggregates={"n": "sum(amount)"})
    refused("name each aggregate once", aggregates={"a": "sum(amount)", "b": "avg(price)", "c": "sum( amount )"})
    refused("have no window, and append mode needs one", output_mode="append")
    refused("name its aggregates", aggregates=None)
    refused("2 key columns", keys=["user"])
    refused("does not answer", bootstrap="127.0.0.1:9")
    frame = aggregated(session, stream).writeStream.format("noop").outputMode("update")
    running = frame.option("checkpointLocation", str(tmp_path / "native")).start()
    refused("is running: stop it first")
    running.stop()
    shutil.rmtree(tmp_path / "native" / "state" / "0" / "1")
    refused("cannot take over the state")
