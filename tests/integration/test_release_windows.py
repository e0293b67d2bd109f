"""What a Spark query has to have as its checkpoint here: windows, watermark, output mode; and what may differ."""

import pytest
from clicks import Clicks
from native_processor import families_in
from native_query import native_session, run_native
from pipeline import await_true
from pyspark.sql import functions as F  # noqa: N812
from topics import json_rows

import impls
from impls.spark.plans import times_of
from impls.worker.output import Output

pytestmark = [pytest.mark.spark, pytest.mark.lengthy]
SECOND = 1_000_000
WINDOWS = {
    (10, 10, 0): ("10 seconds",),
    (10, 4, 0): ("10 seconds", "4 seconds"),
    (3600, 1800, -600): ("1 hour", "30 minutes", "-10 minutes"),
}


@pytest.mark.parametrize("window", WINDOWS)
def test_a_plan_says_which_windows_and_watermarks_it_has(spark, window):
    frame = spark.readStream.format("rate").load().withWatermark("timestamp", "5 seconds")
    found = {"watermarks": [5000], "windows": [[part * SECOND for part in window]]}
    how = F.window((F.col("timestamp").cast("long") % 7 * 3 + 10).cast("timestamp"), *WINDOWS[window])
    assert times_of(frame.withColumn("w", how)) == found
    assert times_of(frame.groupBy(how.alias("by")).count()) == found
    assert times_of(frame) == {**found, "windows": []}


def counted(frame, *window):
    """The twin, with names in another case."""
    by = F.window("AT", *window or ("10 seconds",)).alias("Window")
    ends = [F.count("*").alias("n"), F.max("AT"), F.count(F.lit(1)), F.max("at").alias("last")]
    return frame.groupBy(by, F.col("USER")).agg(*ends)


def test_what_a_checkpoint_has_the_query_has(spark, kafka, topic_factory, tmp_path, results_of):
    clicks, sink, session = Clicks(kafka, topic_factory(2)), topic_factory(4), native_session(spark)
    clicks.send(range(26))
    values = {"n": "count(*)", "latest": "max(at)", "again": "COUNT(*)", "last": "max(at)"}
    with impls.aggregate(
        clicks.frame(spark), ["window", "user"], values, results=Output(kafka, sink, 4), state_dir=tmp_path / "state",
        checkpoint=tmp_path / "ours", workers=2, bins=16,
    ) as query:  # fmt: skip
        results_of(sink).wait_for(9, "the windows from 0, 10 and 20")
        await_true(lambda: query.status()["settled"], "the timers of the windows")
    plain = clicks.frame(session).drop("window")
    whole = counted(plain)

    def refused(why, frame, mode="update"):
        with pytest.raises(impls.UsageError, match=why):
            impls.release(frame, tmp_path / "ours", tmp_path / "theirs", output_mode=mode)
        assert not (tmp_path / "theirs").exists()

    refused("windows of 20 s every 20 s from 0 s on, .* checkpoint's of 10 s every 10 s", counted(plain, "20 seconds"))
    refused("windows of 10 s every 5 s from 0 s on", counted(plain, "10 seconds", "5 seconds"))
    refused("windows of 10 s every 10 s from 3 s on", counted(plain, "10 seconds", "10 seconds", "3 seconds"))
    refused("output mode append, and the checkpoint's update", whole, "append")
    later = json_rows(session, kafka, clicks.topic, "user string, at timestamp").withWatermark("at", "30 seconds")
    refused("a delay of 30000 ms, and the checkpoint's of 3000 ms", counted(later))
    run_native(whole, tmp_path / "undisturbed")
    impls.release(whole, tmp_path / "ours", tmp_path / "theirs")
    assert families_in(spark, tmp_path / "theirs") == families_in(spark, tmp_path / "undisturbed")
