"""Encoding of keys and rows: what goes in comes out, equal keys are equal bytes, and names do not collide."""

import datetime as dt
import math
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import types as t

from impls.errors import UsageError
from impls.processor.encoding import Encoding, Variable
from impls.processor.keys import KeyCodec, key_sql
from impls.processor.rows import StateRowCodec
from impls.store import naming

_TEXT = st.text(st.characters(blacklist_categories=["Cs"]), max_size=8)
_MOMENTS = st.datetimes(dt.datetime(1971, 1, 1), dt.datetime(2200, 1, 1))  # noqa: DTZ001 - as Spark gives them


def decimals(kind: t.DecimalType) -> st.SearchStrategy[Decimal]:
    top = 10**kind.precision - 1
    return st.integers(-top, top).map(lambda n: Decimal(f"{n}E-{kind.scale}"))


def integers(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1)


PLAIN: list[tuple[t.DataType, st.SearchStrategy[object]]] = [
    (t.BooleanType(), st.booleans()),
    (t.ByteType(), integers(8)),
    (t.ShortType(), integers(16)),
    (t.IntegerType(), integers(32)),
    (t.LongType(), integers(64)),
    (t.FloatType(), st.floats(width=32, allow_nan=False)),
    (t.DoubleType(), st.floats(allow_nan=False)),
    (t.StringType(), _TEXT),
    (t.BinaryType(), st.binary(max_size=8)),
    (t.DecimalType(9, 3), decimals(t.DecimalType(9, 3))),
    (t.DecimalType(38, 18), decimals(t.DecimalType(38, 18))),
    (t.DateType(), st.dates(dt.date(1, 1, 2))),
    (t.TimestampType(), _MOMENTS),
    (t.TimestampNTZType(), _MOMENTS),
    (t.DayTimeIntervalType(), st.timedeltas(dt.timedelta(-(10**6)), dt.timedelta(10**6))),
]


@st.composite
def typed(draw: st.DrawFn, *, maps: bool, depth: int = 2) -> tuple[t.DataType, st.SearchStrategy[object]]:
    """A type with values of it."""
    kinds = ["plain", *(["array", "struct"] if depth else []), *(["map"] if depth and maps else [])]
    match draw(st.sampled_from(kinds)):
        case "array":
            kind, values = draw(typed(maps=maps, depth=depth - 1))
            return t.ArrayType(kind), st.lists(st.none() | values, max_size=3)
        case "map":
            key, keys = draw(st.sampled_from(PLAIN))
            kind, values = draw(typed(maps=maps, depth=depth - 1))
            return t.MapType(key, kind), st.dictionaries(keys, st.none() | values, max_size=3)
        case "struct":
            parts = draw(st.lists(typed(maps=maps, depth=depth - 1), min_size=1, max_size=3))
            fields = [t.StructField(f"f{i}", kind) for i, (kind, _) in enumerate(parts)]
            return t.StructType(fields), st.tuples(*(st.none() | values for _, values in parts))
        case _:
            return draw(st.sampled_from(PLAIN))


@st.composite
def rows(draw: st.DrawFn, *, maps: bool) -> tuple[t.StructType, tuple[object, ...], tuple[object, ...]]:
    """A schema and two rows of it."""
    parts = draw(st.lists(typed(maps=maps), min_size=1, max_size=4))
    schema = t.StructType([t.StructField(f"c{i}", kind) for i, (kind, _) in enumerate(parts)])
    one = st.tuples(*(st.none() | values for _, values in parts))
    return schema, draw(one), draw(one)


@pytest.mark.lengthy
@settings(max_examples=200, deadline=None)
@given(rows(maps=True))
def test_a_row_comes_back_as_it_was(drawn: tuple[t.StructType, tuple[object, ...], tuple[object, ...]]) -> None:
    schema, row, _ = drawn
    codec = StateRowCodec(schema)
    assert codec.decode(codec.encode(row)) == row
    assert codec.decode_row(codec.encode(row)).asDict() == dict(zip(schema.names, row, strict=True))


@pytest.mark.parametrize("day", [dt.date(1582, 10, day) for day in (4, 5, 10, 14, 15)] + [dt.date(1500, 3, 1)])
def test_a_day_that_the_calendars_switch_left_out_stays_what_it_was(day: dt.date) -> None:
    fields = (("t", t.TimestampType()), ("n", t.TimestampNTZType()), ("d", t.DateType()))
    codec = StateRowCodec(t.StructType([t.StructField(name, kind) for name, kind in fields]))
    noon = dt.datetime(day.year, day.month, day.day, 12, 2, 3)  # noqa: DTZ001 - as Spark gives them
    assert codec.decode(codec.encode((noon, noon, day))) == (noon, noon, day)


@pytest.mark.lengthy
@settings(max_examples=200, deadline=None)
@given(rows(maps=False))
def test_a_key_comes_back_and_other_keys_are_other_bytes(
    drawn: tuple[t.StructType, tuple[object, ...], tuple[object, ...]],
) -> None:
    schema, one, other = drawn
    codec = KeyCodec(schema)
    assert codec.decode(codec.encode(one)) == one
    assert (codec.encode(one) == codec.encode(other)) == (one == other)
    assert key_sql(schema, [f"`{name}`" for name in schema.names]).startswith("concat(")


def test_zeros_and_nans_are_one_key_each() -> None:
    codec = KeyCodec(t.StructType.fromJson({"type": "struct", "fields": [_field("d", "double")]}))
    assert codec.encode((-0.0,)) == codec.encode((0.0,))
    assert codec.encode((math.nan,)) == codec.encode((-math.nan,))
    assert math.isnan(codec.decode(codec.encode((math.nan,)))[0])


@pytest.mark.parametrize(
    ("kind", "given_", "kept"),
    [
        ("long", 1.5, None),
        ("long", True, None),
        ("long", 1 << 63, None),
        ("integer", (1 << 32) + 7, 7),
        ("double", 1, None),
        ("string", 5, "5"),
        ("string", True, "true"),
        ("binary", "ä", "ä".encode()),
        ("boolean", 1, None),
        ("decimal(4,1)", Decimal("2.25"), Decimal("2.3")),
        ("float", 1e300, math.inf),
    ],
)
def test_values_of_another_type_become_what_spark_makes_of_them(kind: str, given_: object, kept: object) -> None:
    codec = StateRowCodec(t.StructType.fromJson({"type": "struct", "fields": [_field("a", kind)]}))
    assert codec.decode(codec.encode((given_,))) == (kept,)


def test_what_is_no_row_of_the_schema_is_refused_as_in_spark() -> None:
    codec = StateRowCodec(t.StructType.fromJson({"type": "struct", "fields": [_field("a", "long")]}))
    with pytest.raises(TypeError):
        codec.encode(None)
    with pytest.raises(PySparkRuntimeError, match="1 fields are required while 2 values are provided"):
        codec.encode((1, 2))
    with pytest.raises(UsageError, match="variant"):
        StateRowCodec(t.StructType([t.StructField("v", t.VariantType())]), "The state variable v")
    with pytest.raises(UsageError, match="equal maps have many forms"):
        KeyCodec(t.StructType([t.StructField("m", t.MapType(t.StringType(), t.LongType()))]))


@given(st.binary(max_size=400), st.binary(max_size=400), st.binary(max_size=400))
def test_no_name_of_one_key_begins_with_that_of_another(one: bytes, other: bytes, field: bytes) -> None:
    first, second = naming.key_part(one), naming.key_part(other)
    assert one == other or not first.startswith(second)
    part, front = naming.field_part(field)
    assert naming.field_of(part, front + b"row") == (field, b"row")
    value = naming.MAP + naming.label_part("x" * 100) + first + part
    whole = naming.key_front(one) + front
    assert naming.front_of(value, whole + b"row") == whole
    assert naming.front_of(naming.VALUE + value[1:], whole + b"row") == naming.key_front(one)
    assert naming.front_of(naming.ITEM + value[1:], b"row") == b""
    assert len(naming.expiry_name(0, naming.VALUE + naming.label_part("x" * 100) + first + part)) < 480


def test_entries_of_a_key() -> None:
    schema = t.StructType([t.StructField("user", t.StringType())])
    number = t.StructType([t.StructField("n", t.LongType())])
    encoding = Encoding(schema)
    key = encoding.key(("ann",))
    entries = [
        *encoding.value(Variable("v", "value", number), key, (1,)),
        *encoding.items(Variable("l", "list", number), key, [(1,), (2,)], [50, 40]),
        *encoding.field(Variable("m", "map", number, schema), key, ("k" * 200,), (3,), 70),
        *encoding.timers(key, [20, 10, 20]),
    ]
    assert len(dict(entries)) == len(entries) == 1 + 4 + 2 + 2 * 2
    assert encoding.earliest(entries) == 10
    assert 0 <= encoding.bin_of(key, 64) < 64
    assert encoding.items(Variable("l", "list", number), key, []) == encoding.timers(key, []) == []


def _field(name: str, kind: str) -> dict[str, object]:
    return {"name": name, "type": kind, "nullable": True, "metadata": {}}
