"""Results as JSON are what Spark's `to_json` makes of the same rows, in any time zone of the session."""

import datetime as dt
import json
from decimal import Decimal

import pytest
from pyspark.sql import functions as F  # noqa: N812

from impls.processor.output import json_of
from impls.spark.readback import rows_of_json

pytestmark = pytest.mark.spark

ZONES = [
    "UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "+05:30", "-08:00", "Z", "UTC+01:00", "GMT+2", "PST",
]  # fmt: skip
MOMENTS = [
    "0001-01-01T00:00:00", "0001-01-01T23:59:59.999999", "1582-10-04T12:00:00", "1880-06-01T01:02:03.000004",
    "1969-12-31T23:59:59.999999", "1970-01-01T00:00:00", "2026-03-29T01:30:00", "2026-11-01T06:30:00.123456",
    "9999-12-31T00:00:00", "9999-12-31T23:59:59.999999",
]  # fmt: skip
COLUMNS = [
    "timestamp_micros(us) at", "cast(timestamp_micros(us) as timestamp_ntz) local", "date(timestamp_micros(us)) day",
    "struct(timestamp_micros(us) start, timestamp_micros(us) end) window", "array(timestamp_micros(us), null) times",
    "map(timestamp_micros(us), date(timestamp_micros(us))) by_time", "map(1, 'a', 2, null) by_number",
    "map(cast(0.00 as decimal(20,10)), true) by_decimal", "map(true, 1) by_truth",
    "cast(0.1 as float) f", "cast(1e10 as double) d", "double('NaN') no_number", "-double('Infinity') lowest",
    "cast(1e-9 as decimal(38,18)) small", "cast(12.5 as decimal(10,2)) large", "X'00FF' raw", "true yes",
    "'a \"b\" \u00e9' text", "cast(null as int) none",
]  # fmt: skip


@pytest.fixture
def session(spark):
    """A session of the test's own, whose settings nobody else sees."""
    return spark.newSession()


@pytest.mark.parametrize("zone", ZONES)
def test_rows_are_those_of_to_json(session, zone):
    session.conf.set("spark.sql.session.timeZone", "UTC")
    numbers = [(int(_us(moment)),) for moment in MOMENTS]
    rows = session.createDataFrame(numbers, "us long").selectExpr(*COLUMNS)
    table = rows.toArrow()
    session.conf.set("spark.sql.session.timeZone", zone)
    expected = [row.j for row in rows.select(F.to_json(F.struct(*rows.columns)).alias("j")).collect()]
    session.conf.set("spark.sql.session.timeZone", "UTC")
    own = session.createDataFrame(numbers, "us long").selectExpr(*COLUMNS).schema
    found = [text.decode() for text in json_of(own, zone)(table)]
    for ours, sparks in zip(map(_parsed, found), map(_parsed, expected), strict=True):
        assert {name: value for name, value in ours.items() if value != sparks.get(name)} == {}
        assert ours.keys() == sparks.keys()


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "+05:30"])
def test_a_sink_that_takes_a_frame_gets_the_rows_back(session, zone):
    """To the microsecond, with the keys of maps, also within other types."""
    session.conf.set("spark.sql.session.timeZone", zone)
    local = "cast(timestamp_micros(us) as timestamp_ntz)"
    inside = ["array(map(1.5D, 'a')) listed", f"named_struct('m', map({local}, 1)) within"]
    numbers = [(int(_us(moment)),) for moment in MOMENTS]
    rows = session.createDataFrame(numbers, "us long").selectExpr(*COLUMNS, *inside)
    written = [(text.decode(),) for text in json_of(rows.schema, zone, micros=True)(rows.toArrow())]
    back = rows_of_json(session.createDataFrame(written, "value string"), rows.schema.json())
    texts = [f"string({name})" for name in rows.columns]
    assert back.schema.simpleString() == rows.schema.simpleString()
    assert back.selectExpr(*texts).collect() == rows.selectExpr(*texts).collect()


def _us(text):
    moment = dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC)
    return (moment - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)


def _parsed(text):
    return json.loads(text, parse_float=Decimal)
