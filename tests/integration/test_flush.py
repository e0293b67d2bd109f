"""The iterator that lets Arrow's writer go on: rows pass as they are, with two more behind what nothing follows."""

import pytest
from pipeline import await_true
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812

from impls.spark.realtime.runner import flushing

pytestmark = pytest.mark.spark
ROWS = 10_000  # more than its queue holds


def flushed(df, **more):
    return flushing(df, **{"full_bytes": 100, "idle_us": 1000, "linger_us": 5000, **more})


def readers(spark) -> int:
    """Threads of the JVM that read for an iterator."""
    names = [thread.getName() for thread in spark._jvm.java.lang.Thread.getAllStackTraces().keySet().toArray()]
    return sum(name.startswith("rescale-flush") for name in names)


def test_rows_pass_in_their_order_with_every_type_that_records_have(spark):
    df = spark.range(0, ROWS, 1, 2).select(
        F.col("id").cast("int").alias("bin"), "id", F.col("id").cast("string").alias("text"),
        F.unhex(F.hex("id")).alias("bytes"), F.timestamp_micros("id").alias("at"),
        F.when(F.col("id") % 3 == 0, F.col("id")).alias("perhaps"),
    )  # fmt: skip
    passed = flushed(df).where("bin is not null")
    assert passed.drop("pad").collect() == df.collect()
    assert passed.where("pad is not null").count() == 0


def test_a_row_that_none_follows_in_time_has_a_full_row_and_one_more_behind_it(spark):
    slow = spark.range(0, 4, 1, 1).where("reflect('java.lang.Thread', 'sleep', 100L) is not null")
    rows = flushed(slow).collect()
    assert [row["id"] for row in rows if row["id"] is not None] == [0, 1, 2, 3]
    for place, row in enumerate(rows):
        if row["id"] is not None and row["id"] < 3:  # the last one may see the end first
            full, behind = rows[place + 1 : place + 3]
            assert (full["id"], len(full["pad"])) == (None, 100)
            assert (behind["id"], behind["pad"]) == (None, None)


def test_rows_that_follow_each_other_are_sent_when_the_first_has_lingered(spark):
    steady = spark.range(0, 200, 1, 1).where("reflect('java.lang.Thread', 'sleep', 1L) is not null")
    rows = flushed(steady, idle_us=10_000_000, linger_us=20_000).collect()
    assert sum(row["pad"] is not None for row in rows) >= 2
    assert [row["id"] for row in rows if row["id"] is not None] == list(range(200))


def test_an_error_of_the_source_is_that_of_the_query(spark):
    broken = spark.range(10).select(F.when(F.col("id") == 7, F.raise_error(F.lit("broken row"))).alias("a"))
    with pytest.raises(PySparkException, match="broken row"):
        flushed(broken).collect()


def test_a_task_that_needs_no_more_rows_leaves_no_thread(spark):
    assert len(flushed(spark.range(0, 100 * ROWS, 1, 1)).take(3)) == 3
    await_true(lambda: readers(spark) == 0, "the readers to end")
