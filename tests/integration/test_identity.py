"""The identity of a record goes through the plan of a DataFrame, whatever that keeps of Kafka's columns."""

from pathlib import Path

import pytest
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from impls.errors import UsageError
from impls.processor.keys import columns_sql
from impls.spark.carrying import OFFSET, PARTITION
from impls.spark.identity import Identified, clock_in, identified, readings_of, rows_of
from impls.spark.topics import Topics

pytestmark = pytest.mark.spark


def of(df) -> Identified:
    return identified(df, Topics.read(Path("/no/checkpoint"), readings_of(df)))


@pytest.fixture
def source(spark):
    """source(subscribe="a,b") is a source of topics that nobody reads."""

    def make(**subscription):
        reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", "localhost:1")
        for name, value in subscription.items():
            reader = reader.option(name, value)
        return reader.load()

    return make


def view(df):
    df.createOrReplaceTempView("records")
    return df.sparkSession.sql("select value v, partition * 7 partition from records where value is not null")


PLANS = {
    "projected": (lambda df: df.select("value"), False, "", ""),
    "renumbered": (lambda df: df.selectExpr("value", "partition * 2 partition", "offset + 1 offset"), False, "", ""),
    "filtered": (lambda df: df.where("value is not null").alias("x").selectExpr("x.value v"), False, "", "Filter"),
    "exploded": (
        lambda df: df.select(F.explode(F.split(F.col("value").cast("string"), ",")).alias("w")), True, "", "Generate",
    ),
    "united": (lambda df: df.select("value").union(df.select("key").where("true")), False, "", "Filter"),
    "watched": (lambda df: df.withWatermark("timestamp", "1 second").select("timestamp"), False, "", ""),
    "view": (view, False, "", "Filter"),
    "joined": (lambda df: df.join(numbers(df), F.col("n") == 1), True, "Join", "Join"),
    "looked up": (lambda df: df.join(numbers(df), F.col("n") == 1, "left"), True, "Join", ""),
    "shuffled": (lambda df: df.select("value").repartition(2), False, "Repartition", ""),
}  # fmt: skip


def numbers(df):
    return F.broadcast(df.sparkSession.range(3).withColumnRenamed("id", "n"))


@pytest.mark.parametrize("plan", PLANS.values(), ids=list(PLANS))
def test_a_plan_passes_it_on_and_says_what_becomes_of_a_record_and_its_order(source, plan):
    make, several, unordered, hides = plan
    found = of(make(source(subscribe="a,b")))
    assert (found.carried, found.several, found.unordered, found.hides) == (True, several, unordered, hides)
    assert found.frame.select(PARTITION, OFFSET).dtypes == [(PARTITION, "bigint"), (OFFSET, "bigint")]


def test_an_expression_without_one_value_is_refused(source):
    for made in ("rand() < 0.5", "uuid() = ''", "monotonically_increasing_id() > 1"):
        with pytest.raises(UsageError, match="gives another value each time, such as rand or uuid"):
            of(source(subscribe="a").where(made))


def test_the_bits_of_a_double_are_one_value_for_all_that_spark_takes_them_by_reflection(source):
    """A key with a double has them; whatever else is called by reflection may be another value each time."""
    key = columns_sql(StructType.fromDDL("d double, f array<float>"), ["d", "f"])
    doubles = source(subscribe="a").selectExpr("*", "double(offset) d", "array(float(offset)) f")
    assert of(doubles.selectExpr("*", f"{key} key")).carried
    for made in (f"{key} = X'00' and rand() < 0.5", f"shuffle(array({key}))[0] = X'00'"):
        with pytest.raises(UsageError, match="gives another value each time"):
            of(doubles.where(made))
    with pytest.raises(UsageError, match="gives another value each time"):
        of(doubles.where("reflect('java.util.UUID', 'randomUUID') = ''"))


def test_a_function_that_hides_the_topic_is_refused_where_there_are_several(source):
    def same(frames):
        yield from frames

    hidden = [source(**of).mapInPandas(same, "value binary, partition int, offset long") for of in (
        {"subscribe": "a"}, {"subscribe": "a,b"}, {"subscribePattern": "a.*"}
    )]  # fmt: skip
    assert not of(hidden[0]).carried
    for several in hidden[1:]:
        with pytest.raises(UsageError, match="MapInPandas behind its topics, which hides from which topic a record is"):
            of(several)


def test_one_topic_behind_such_a_function_is_refused_where_another_was_read_before(source, tmp_path):
    Topics.read(tmp_path, readings_of(source(subscribe="a,b"))).keep(tmp_path)
    later = source(subscribe="b").mapInPandas(lambda frames: frames, "value binary, partition int, offset long")
    with pytest.raises(UsageError, match="hides from which topic a record is"):
        identified(later, Topics.read(tmp_path, readings_of(later)))


@pytest.mark.parametrize("clock", ["current_timestamp", "now", "current_date", "localtimestamp"])
def test_an_expression_of_the_time_is_known_also_deep_in_a_plan(source, clock):
    found = of(source(subscribe="a").selectExpr("value", f"string({clock}()) at").where("at > 'now()'").select("value"))
    assert clock_in(found.frame) in {clock, "current_timestamp"}
    assert clock_in(of(source(subscribe="a").where("string(value) <> 'now()'")).frame) == ""


ROWS = {
    "a column that explode reads": ("split(v, ',') parts", "explode(parts) word", "true"),
    "a column of a column": ("v s", "explode(split(s, ',')) word", "true"),
    "a column that a filter reads": ("v s", "explode(split(s, ',')) word", "word <> s"),
}


@pytest.mark.parametrize(("column", "rows", "where"), ROWS.values(), ids=list(ROWS))
def test_what_numbers_the_rows_of_a_record_are_all_expressions_that_they_come_from(source, column, rows, where):
    def made(value, last="word", key="1"):
        df = source(subscribe="a").selectExpr(f"{value} v", f"{key} k").selectExpr(column, "k")
        return rows_of(df.selectExpr("*", rows).where(where).selectExpr(last, "k"))

    before = made("string(value)")
    assert made("string(value)", "upper(word)", "2") == before
    assert made("string(key)") != before


def test_columns_of_each_part_of_a_union_count_and_literals_are_whole(source):
    def made(second="string(value)", sign="#1"):
        parts = [source(subscribe="a").selectExpr(f"explode(split(string(value), '{sign}')) w", "string(key) k")]
        parts.append(source(subscribe="b").selectExpr("explode(split(string(value), ',')) w", f"{second} k"))
        return rows_of(parts[0].union(parts[1]).where("k > 'b'"))

    assert made() == made()
    assert len({made(), made("upper(string(value))"), made(sign="#2")}) == 3


def test_another_source_keeps_its_own_columns(spark):
    rate = spark.readStream.format("rate").load().selectExpr("*", "0 as partition", "value as offset")
    found = of(rate)
    assert not found.carried
    assert not found.several


@pytest.mark.parametrize("name", [PARTITION, "Rescale_Offset"])
def test_a_column_with_the_name_of_one_that_is_carried_is_refused_also_inside_a_plan(source, name):
    for df in (
        source(subscribe="a").withColumn(name, F.lit(1)),
        source(subscribe="a").withColumn(name, F.lit(1)).drop(name),
    ):
        with pytest.raises(UsageError, match=f"has a column '{name}', a name that the runtime needs"):
            of(df)
