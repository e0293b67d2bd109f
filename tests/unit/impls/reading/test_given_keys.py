"""Keys that users give: as values, as text, and of a type that is not the query's."""

import datetime as dt
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as t

from impls.errors import UsageError
from impls.processor.keys import KeyCodec
from impls.reading.keys import KeyReader
from impls.reading.texts import json_text


def schema(*kinds):
    return t.StructType([t.StructField(f"c{place}", kind) for place, kind in enumerate(kinds)])


def reader(*kinds):
    return KeyReader({"values": "processor", "key": "binary", "columns": schema(*kinds).jsonValue()}, columns=True)


TIMES = st.datetimes(dt.datetime(1971, 1, 1), dt.datetime(2037, 1, 1))  # noqa: DTZ001 - as pyspark gives them
SIMPLE = [
    (t.BooleanType(), st.booleans()),
    (t.ByteType(), st.integers(-128, 127)),
    (t.IntegerType(), st.integers(-(1 << 31), (1 << 31) - 1)),
    (t.LongType(), st.integers(-(1 << 63), (1 << 63) - 1)),
    (t.DoubleType(), st.floats(allow_nan=True)),
    (t.StringType(), st.text()),
    (t.BinaryType(), st.binary()),
    (t.DecimalType(9, 2), st.decimals(-9999, 9999, places=2)),
    (t.DateType(), st.dates(dt.date(1900, 1, 1))),
    (t.TimestampNTZType(), TIMES),
]


@st.composite
def keys(draw):
    """Columns, and a key of them."""
    chosen = draw(st.lists(st.sampled_from(SIMPLE), min_size=1, max_size=3))
    pairs = [(kind, draw(st.none() | values)) for kind, values in chosen]
    if draw(st.booleans()):
        kind, values = draw(st.sampled_from(SIMPLE))
        pairs.append((t.ArrayType(kind), draw(st.lists(values, max_size=3))))
    if draw(st.booleans()):
        kind, values = draw(st.sampled_from(SIMPLE))
        pairs.insert(0, (schema(kind), (draw(values),)))
    return [kind for kind, _ in pairs], tuple(value for _, value in pairs)


@given(keys())
def test_a_key_is_what_the_query_has_stored_and_its_json_names_it(drawn):
    kinds, key = drawn
    found = reader(*kinds).of_value(key)
    assert found.raw == KeyCodec(schema(*kinds)).encode(key)
    again = reader(*kinds).of_value(found.shown)
    assert (again.raw, again.number, repr(again.shown)) == (found.raw, found.number, repr(found.shown))  # NaN
    assert found.raw in {one.raw for one in reader(*kinds).of_text(json_text(found.shown))}


@given(st.sampled_from(SIMPLE).flatmap(lambda pair: st.tuples(st.just(pair[0]), pair[1])))
def test_the_only_column_may_be_given_as_it_is(drawn):
    kind, value = drawn
    whole = reader(kind).of_value((value,))
    assert reader(kind).of_value(value).raw == reader(kind).of_value({"c0": value}).raw == whole.raw
    assert whole.raw in {one.raw for one in reader(kind).of_text(json_text(value))}


@given(st.sampled_from(SIMPLE), st.sampled_from(SIMPLE).flatmap(lambda pair: st.tuples(st.just(pair[0]), pair[1])))
def test_a_value_is_that_key_or_refused_and_never_another_one(pair, drawn):
    kind, _ = pair
    other, value = drawn
    try:
        (shown,) = reader(kind).of_value(value).shown
    except UsageError:
        assert kind != other
    else:
        assert shown == value or shown != shown  # noqa: PLR0124 - NaN


@pytest.mark.parametrize(("kind", "number"), [(t.DoubleType(), 2**53 + 1), (t.FloatType(), 2**24 + 1)])
def test_an_integer_that_no_float_is_gets_a_sentence_and_its_neighbour_is_a_key(kind, number):
    with pytest.raises(UsageError, match=f"is of type {kind.simpleString()}: {number} does not fit"):
        reader(kind).of_value(number)
    assert reader(kind).of_value(number - 1).shown == (float(number - 1),)


WHOLE = {"values": "json", "key": "long"}


@pytest.mark.parametrize(
    ("form", "key", "raw"),
    [
        ("long", 7, b"\0" * 7 + b"\7"),
        ("long", np.int32(-1), b"\xff" * 8),
        ("string", "zoé", "zoé".encode()),
        ("binary", bytearray(b"\0x"), b"\0x"),
    ],
)
def test_a_key_that_is_one_column(form, key, raw):
    assert KeyReader({**WHOLE, "key": form}, columns=False).of_value(key).raw == raw


@pytest.mark.parametrize(
    ("form", "key"),
    [("long", "7"), ("long", True), ("long", 1 << 63), ("long", 7.0), ("long", None), ("string", 7), ("string", b"7"),
     ("binary", "7"), ("binary", None)],
)  # fmt: skip
def test_a_key_of_another_type_gets_a_sentence(form, key):
    with pytest.raises(UsageError, match="The query's keys are"):
        KeyReader({**WHOLE, "key": form}, columns=False).of_value(key)


@pytest.mark.parametrize(
    ("form", "text", "keys"),
    [
        ("long", "7", [7]),
        ("string", "7", ["7"]),
        ("string", '"u7"', ['"u7"', "u7"]),
        ("binary", '"dTc="', [b"u7", b'"dTc="']),
        ("binary", "u7", [b"u7"]),
    ],
)
def test_a_text_may_mean_several_keys(form, text, keys):
    assert [key.shown for key in KeyReader({**WHOLE, "key": form}, columns=False).of_text(text)] == keys


def test_a_text_that_can_mean_no_key_gets_a_sentence():
    with pytest.raises(UsageError, match=r"The key u7 is none of the query's: that is of type long\."):
        KeyReader(WHOLE, columns=False).of_text("u7")
    with pytest.raises(UsageError, match="has the columns c0 int, c1 date, as JSON"):
        reader(t.IntegerType(), t.DateType()).of_text("u7")
    with pytest.raises(UsageError, match="give a tuple of them, not 7"):
        reader(t.IntegerType(), t.DateType()).of_value(7)
    with pytest.raises(UsageError, match="not 3 of them"):
        reader(t.IntegerType(), t.DateType()).of_value((1, 2, 3))
    with pytest.raises(UsageError, match="c0 int, c1 date, not c0"):
        reader(t.IntegerType(), t.DateType()).of_value({"c0": 1})
    with pytest.raises(UsageError, match="column c0 is of type tinyint: 300 does not fit"):
        reader(t.ByteType()).of_value(300)


def test_a_window_is_given_as_it_is_read():
    form = {"values": "aggregates", "key": "binary", "keys": {"window": "struct<start:timestamp,end:timestamp>"}}
    begin, end = (dt.datetime(2026, 1, 2, hour, tzinfo=dt.UTC) for hour in (1, 2))
    made = KeyReader(form, columns=True)
    found = made.of_value((begin, end))
    assert found == made.of_value(((begin, end),)) == made.of_value(found.shown)
    assert (found.shown.window.start, found.shown.window.end) == (begin, end)
    assert [one.raw for one in made.of_text(json_text(found.shown))] == [found.raw]


def test_a_number_that_is_no_decimal_of_the_column_is_refused():
    for text in ("123456.00", "1.005", "NaN", "Infinity"):
        with pytest.raises(UsageError, match=r"does not fit"):
            reader(t.DecimalType(4, 2)).of_value(Decimal(text))
    assert reader(t.DecimalType(4, 2)).of_value(Decimal("1.5")).shown == (Decimal("1.50"),)
    assert reader(t.FloatType()).of_value(0.1).shown == (float(np.float32(0.1)),)
