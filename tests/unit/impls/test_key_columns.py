"""The columns of a grouping key, which append mode takes from its bytes."""

import pickle
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
from pyspark.sql import types as t

from impls.aggregation import KeyColumns
from impls.operators.aggregates.rows import key_type
from impls.processor.keys import KeyCodec

WINDOW = t.StructType([t.StructField("start", t.TimestampType()), t.StructField("end", t.TimestampType())])
KINDS = {
    "window": WINDOW, "name": t.StringType(), "day": t.DateType(), "at": t.TimestampType(),
    "there": t.TimestampNTZType(), "worth": t.DecimalType(10, 2), "yes": t.BooleanType(), "n": t.IntegerType(),
    "x": t.FloatType(), "raw": t.BinaryType(),
}  # fmt: skip
SCHEMA = t.StructType([t.StructField(name, kind) for name, kind in KINDS.items()])


def test_every_type_of_a_key_comes_back_in_utc_whatever_the_time_zone():
    at = datetime(2026, 3, 29, 1, 30, 0, 5, UTC)
    row = ((at, at), "ü", date(2026, 2, 3), at, at.replace(tzinfo=None), Decimal("12.50"), True, -3, 0.5, b"\0x")
    nothing = (None,) * len(KINDS)
    columns = pickle.loads(pickle.dumps(KeyColumns(SCHEMA)))
    codec = KeyCodec(SCHEMA)
    for _ in range(2):
        table = columns([codec.encode(row), codec.encode(nothing)])
        assert table.schema == pa.schema([(f.name, key_type(f.dataType.simpleString())) for f in SCHEMA.fields])
        found = table.to_pylist()
        assert found[0] == dict(zip(KINDS, ({"start": at, "end": at}, *row[1:]), strict=True))
        assert found[1] == dict.fromkeys(KINDS)
