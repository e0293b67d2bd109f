"""Results that a filter leaves out stay in the plan of a query in real time, and change nothing else."""

import datetime as dt
import json
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from impls.operators import HashCount
from impls.spark.carrying import KEPT, OFFSET
from impls.spark.columns import prepared
from impls.spark.identity import identified, readings_of
from impls.spark.links import results_of
from impls.spark.plans import items
from impls.spark.topics import Topics
from impls.worker.output import Output
from impls.worker.results import HEADER, NUMBER

pytestmark = pytest.mark.spark
SCHEMA = "n long, text string, at timestamp"
RECORDS = 24
PLANS, MORE = 6, 40
BEGIN = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


@pytest.fixture
def results(spark):
    return results_of(spark, Output("localhost:1", "t", 1), SCHEMA).withWatermark("at", "1 second")


def records(spark, leaf):
    """A static plan with the columns of a streaming leaf: `n` is 0 in every third, `text` no number in every fourth."""
    rows = [
        (b"k", value_of(n), "t", 0, n, BEGIN, 0, [(HEADER, bytes(NUMBER.size))])  # as Kafka's source has them
        for n in range(RECORDS)
    ]
    schema = StructType.fromJson(json.loads(leaf.schema().json()))
    return spark.createDataFrame(rows, schema=schema)._jdf.queryExecution().analyzed()


def value_of(n):
    at = {} if n % 5 == 0 else {"at": (BEGIN + dt.timedelta(seconds=n)).isoformat()}
    return json.dumps({"n": n % 3, "text": "no" if n % 4 == 0 else str(n), **at}).encode()


class Static:
    """of(plan) is the DataFrame of a streaming plan whose leaves have RECORDS records instead."""

    def __init__(self, spark):
        self._spark, self._jvm = spark, spark._jvm

    def of(self, plan):
        dataset = self._jvm.org.apache.spark.sql.classic.Dataset
        return DataFrame(dataset.ofRows(self._spark._jsparkSession, self._with_records(plan)), self._spark)

    def _sequence(self, given):
        return self._jvm.org.apache.spark.api.python.PythonUtils.toSeq(given)

    def _with_records(self, node):
        if children := items(node.children()):
            return node.withNewChildren(self._sequence([*map(self._with_records, children)]).toIndexedSeq())
        if not node.isStreaming():
            return node
        expressions, none = self._jvm.org.apache.spark.sql.catalyst.expressions, self._jvm.scala.Option.apply(None)
        child, empty = records(self._spark, node), self._sequence([])
        columns = [
            expressions.Alias(made, one.name(), one.exprId(), empty, none, empty)
            for made, one in zip(items(child.output()), items(node.output()), strict=True)
        ]
        return self._jvm.org.apache.spark.sql.catalyst.plans.logical.Project(self._sequence(columns), child)


def drawn(results, rng):
    """A plan of steps that would raise on what the filters before them leave out."""
    df, guarded = results, set()
    for _ in range(rng.integers(2, 7)):
        match rng.integers(8):
            case 0:
                df, guarded = df.where("n <> 0"), guarded | {"n"}
            case 1:
                df, guarded = df.where("text <> 'no'"), guarded | {"text"}
            case 2 if "n" in guarded:
                df = df.withColumn("share", F.expr("100 div n"))
            case 3 if "text" in guarded:
                df = df.withColumn("number", F.expr("cast(text as int)"))
            case 4 if "text" in guarded:
                df = df.where("cast(text as int) % 2 = 1")
            case 5 if "w" not in df.columns:
                hop = str(rng.choice(["10 seconds", "5 seconds", "4 seconds"]))
                df = df.withColumn("w", F.window("at", "10 seconds", hop))
            case 6:
                df = df.select("*").alias("x").where("x.n >= 0")
            case 7 if "number" in df.columns:
                df = df.where("number > 3").union(df.where("100 div number < 50 and n < 2"))
    return df


@pytest.mark.parametrize(
    "seed", [*range(PLANS), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(PLANS, MORE))]
)
def test_plans_with_filters_have_the_same_rows_and_every_record_of_their_input(spark, results, seed):
    plan, static = drawn(results, np.random.default_rng(seed)), Static(spark)
    known = Topics.read(Path("/no/checkpoint"), readings_of(plan))
    left, kept = identified(plan, known), identified(plan, known, keeping=True)
    assert kept.hides in {"", "Expand"}, "a window of several"
    assert kept.frame.schema[: len(plan.columns)] == plan.schema[:], "with nullability and the watermark's delay"
    expected = static.of(left.frame._jdf.queryExecution().analyzed())
    found = static.of(kept.frame._jdf.queryExecution().analyzed()).cache()
    assert kept.kept == bool(left.hides)
    rows = found.where(KEPT).drop(KEPT) if kept.kept else found
    assert sorted(map(str, rows.collect())) == sorted(map(str, expected.collect()))
    assert {row[0] for row in found.select(OFFSET).collect()} == {*range(RECORDS)}


def test_what_is_left_out_has_no_bin_and_neither_key_nor_time(spark, results):
    plan = results.where("n <> 0").withColumn("k", F.expr("100 div n"))
    found = identified(plan, Topics.read(Path("/no/checkpoint"), readings_of(plan)), keeping=True)
    ready = prepared(found, "k", HashCount(), 16, "n")
    rows = Static(spark).of(ready._jdf.queryExecution().analyzed()).collect()
    assert len(rows) == RECORDS
    for row in rows:
        left_out = row["offset"] % 3 == 0
        assert [row[name] is None for name in ("bin", "time", "key")] == [left_out] * 3
        assert row["partition"] == 0


BEHIND = {
    "looked up": lambda kept, spark: kept.join(numbers(spark), F.expr("100 div n = m"), "left"),
    "function": lambda kept, _: kept.withColumn("share", F.udf(lambda n: 100 // n, "long")("n")),
    "exploded": lambda kept, _: kept.withColumn("one", F.explode(F.expr("sequence(1, 2 div n)"))),
}
HIDES = {"looked up": "Filter", "function": "Filter", "exploded": "Generate"}


def numbers(spark):
    return F.broadcast(spark.range(3).withColumnRenamed("id", "m"))


@pytest.mark.parametrize("what", BEHIND)
def test_a_filter_stays_where_what_comes_behind_it_is_evaluated_of_all_records(spark, results, what):
    """A join's condition, a function in Python, and what makes rows: each fails on what the filter leaves out."""
    plan, static = BEHIND[what](results.where("n <> 0"), spark), Static(spark)
    known = Topics.read(Path("/no/checkpoint"), readings_of(plan))
    found, left = identified(plan, known, keeping=True), identified(plan, known)
    assert (found.hides, found.kept) == (HIDES[what], False)
    rows, expected = (static.of(one.frame._jdf.queryExecution().analyzed()).collect() for one in (found, left))
    assert rows
    assert sorted(map(str, rows)) == sorted(map(str, expected))


def test_a_filter_stays_where_it_asks_a_query(spark, results):
    numbers(spark).createOrReplaceTempView("numbers")
    plan = results.where("n in (select m from numbers)")
    known = Topics.read(Path("/no/checkpoint"), readings_of(plan))
    assert identified(plan, known, keeping=True).hides == "Filter"


def test_a_column_of_the_user_s_is_not_taken_for_what_a_filter_keeps(spark, results):
    plan = results.withColumn(KEPT, F.expr("false"))
    found = identified(plan, Topics.read(Path("/no/checkpoint"), readings_of(plan)), keeping=True)
    assert not found.kept
    rows = Static(spark).of(prepared(found, "n", HashCount(), 16, None)._jdf.queryExecution().analyzed()).collect()
    assert all(row["bin"] is not None for row in rows)
