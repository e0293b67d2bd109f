"""A native aggregation by windows goes on here: what they had is kept, and what is late by Spark's clock left out."""

import json
from datetime import datetime

import pytest
from clicks import BEGIN, Clicks
from native_query import native_session, run_native

pytestmark = [pytest.mark.spark, pytest.mark.lengthy]


def rows_of(values):
    """The last count of each user and window, by the window's begin in seconds."""
    found = {}
    for row in map(json.loads, values):
        begin = datetime.fromisoformat(row["window"]["start"]) - BEGIN
        found[row["user"], int(begin.total_seconds())] = row["n"]
    return found


def test_windows_and_their_watermark_go_on_here(spark, kafka, topic_factory, tmp_path, results_of):
    import impls
    from impls.worker.output import Output

    clicks, sink, native = Clicks(kafka, topic_factory(2)), topic_factory(4), tmp_path / "native"
    clicks.send(range(26))
    run_native(clicks.frame(native_session(spark)).groupBy("window", "user").count(), native)  # watermark: 22 s
    impls.adopt(
        spark,
        native,
        tmp_path / "ours",
        bootstrap=kafka,
        aggregates={"n": "count(*)"},
        output_mode="update",
        bins=16,
        workers=2,
    )
    clicks.send([5, 15], late=True)
    clicks.send(range(26, 40))
    with impls.aggregate(
        clicks.frame(spark), ["window", "user"], {"n": "count(*)"}, results=Output(kafka, sink, 4),
        state_dir=tmp_path / "state", checkpoint=tmp_path / "ours", workers=2, bins=16,
    ) as query:  # fmt: skip
        expected = {name: n for name, n in clicks.counts.items() if n and name[1] >= 20}
        values = results_of(sink).wait_for(len(expected), "the counts of windows that are open")
        query.rescale(workers=3)
        clicks.send(range(40, 70))
        expected = {name: n for name, n in clicks.counts.items() if n and name[1] >= 20}
        while rows_of(values) != expected:
            values = results_of(sink).wait_for(len(values) + 1, f"other counts than {rows_of(values)}")
        assert query.await_migration(60)
    assert not {begin for _, begin in rows_of(values)} & {0, 10}


def test_rows_of_windows_that_were_open_in_append_mode_come_once_and_whole(
    spark, kafka, topic_factory, tmp_path, results_of
):
    import impls
    from impls.errors import UsageError
    from impls.worker.output import Output

    clicks, sink, native = Clicks(kafka, topic_factory(2)), topic_factory(4), tmp_path / "native"
    clicks.send(range(26))
    counted = clicks.frame(native_session(spark)).groupBy("window", "user").count()
    run_native(counted, native, "append")  # watermark: 22 s, so Spark has sent the windows from 0 and 10
    how = {"bootstrap": kafka, "aggregates": {"n": "count(*)"}, "bins": 16, "workers": 2}
    with pytest.raises(UsageError, match="does not say in which output mode"):
        impls.adopt(spark, native, tmp_path / "ours", **how)
    impls.adopt(spark, native, tmp_path / "ours", output_mode="append", **how)
    clicks.send([5, 15], late=True)
    clicks.send(range(26, 40))
    where = {"results": Output(kafka, sink, 4), "state_dir": tmp_path / "state", "checkpoint": tmp_path / "ours"}
    start = {"keys": ["window", "user"], "values": {"n": "count(*)"}, "workers": 2, "bins": 16, **where}
    with pytest.raises(UsageError, match="output_mode"):
        impls.aggregate(clicks.frame(spark), **start)
    with impls.aggregate(clicks.frame(spark), output_mode="append", **start) as query:
        values = results_of(sink).wait_for(3, "the window from 20 on")
        query.rescale(workers=3)
        clicks.send(range(40, 70))  # watermark: 66 s
        values = results_of(sink).wait_for(12, "the windows up to that from 50 on")
        assert query.await_migration(60)
    assert len(values) == 12
    assert rows_of(values) == {(user, begin): 10 for user in "abc" for begin in (20, 30, 40, 50)}
