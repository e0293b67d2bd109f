"""Aggregates of any records, in any epochs, are those of a computation over plain Python values by Spark's rules."""

import json
import math
import tempfile
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from impls.errors import OperatorError
from impls.operators import Aggregate
from impls.operators.aggregates.rows import RowCodec, arrow_type
from impls.store.environment import Store
from impls.store.hashing import hash_bytes
from impls.store.state import BinState

BINS = 8
COLUMNS = {"i": "bigint", "b": "tinyint", "d": "double", "m": "decimal(10,2)", "s": "string", "t": "timestamp",
           "o": "boolean", "x": "binary", "e": "date"}  # fmt: skip
VALUES = {
    "i": st.integers(-(1 << 40), 1 << 40),
    "b": st.integers(-128, 127),
    "d": st.floats(width=64, allow_infinity=False),
    "m": st.decimals(-1000, 1000, places=2),
    "s": st.text(max_size=3),
    "t": st.datetimes(),
    "o": st.booleans(),
    "x": st.binary(max_size=2),
    "e": st.dates(),
}
NUMBERS = ("i", "b", "d", "m")
RECORDS = st.lists(
    st.fixed_dictionaries({"user": st.sampled_from("abc"), **{c: st.none() | v for c, v in VALUES.items()}}),
    min_size=1, max_size=12,
)  # fmt: skip
AGGREGATES = {
    "n": "count(*)",
    **{f"count_{c}": f"count({c})" for c in COLUMNS},
    **{f"{f}_{c}": f"{f}({c})" for f in ("min", "max") for c in COLUMNS if c not in "tex"},
    **{f"{f}_{c}": f"{f}({c})" for f in ("sum", "avg") for c in NUMBERS},
}


def table(records: list[dict]) -> pa.Table:
    keys = [record["user"].encode() for record in records]
    columns = {c: pa.array([r[c] for r in records], arrow_type(kind)) for c, kind in COLUMNS.items()}
    columns["user"] = pa.array([record["user"] for record in records])
    bins = pa.array([hash_bytes(key) * BINS >> 64 for key in keys], pa.int32())
    return pa.table({"bin": bins, "key": pa.array(keys, pa.binary()), **columns})


def expected(function: str, column: str, records: list[dict]):
    """Spark's answer over all records of a key."""
    values = [record[column] for record in records if record[column] is not None]
    match function:
        case "count":
            return len(values)
        case "min" | "max":
            order = (lambda v: (math.isnan(v), v)) if column == "d" else (lambda v: v.encode() if column == "s" else v)
            return (min if function == "min" else max)(values, key=order, default=None)
        case "sum":
            return _sum(values) if values else None
    if not values:
        return None
    if column == "m":
        return (_sum(values) / len(values)).quantize(Decimal("1e-6"), ROUND_HALF_UP)
    return _sum([float(value) for value in values]) / len(values)


def _sum(values):
    total = values[0] * 0 if not isinstance(values[0], float) else 0.0
    for value in values:
        total += value
    return total


def comes_as(value):
    """A value as JSON gives it back."""
    if isinstance(value, Decimal):
        return json.loads(f"{value:f}")
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


@pytest.mark.lengthy
@settings(max_examples=60)
@given(st.lists(RECORDS, min_size=1, max_size=3))
def test_any_records_in_any_epochs_have_sparks_aggregates(epochs):
    operator, so_far = Aggregate({"user": "string"}, AGGREGATES, COLUMNS), {}
    with tempfile.TemporaryDirectory() as folder, Store.open(Path(folder) / "w") as store:
        for records in epochs:
            with store.begin() as txn:
                state = BinState(txn, BINS)
                results = operator.apply(table(records), state)
                state.write_sizes()
            for record in records:
                so_far.setdefault(record["user"], []).append(record)
            assert sorted(results.keys) == sorted({record["user"].encode() for record in records})
            for key, payload in zip(results.keys, results.payloads, strict=True):
                mine = so_far[key.decode()]
                row = json.loads(payload)
                assert row.pop("user") == key.decode()
                assert row.pop("n") == len(mine)
                asked = {name: tuple(name.split("_")) for name in AGGREGATES if name != "n"}
                wanted = {name: comes_as(expected(*how, mine)) for name, how in asked.items()}
                assert row == {name: value for name, value in wanted.items() if value is not None}


PLAIN = {**VALUES, "d": st.floats(allow_nan=False)}  # as NaN is not equal to itself


@given(st.lists(st.tuples(*[st.none() | PLAIN[c] for c in COLUMNS]), max_size=6))
def test_rows_of_any_types_come_back_as_they_were(rows):
    kinds = [arrow_type(kind) for kind in COLUMNS.values()]
    codec = RowCodec(kinds)
    columns = [pa.array([row[n] for row in rows], kind) for n, kind in enumerate(kinds)]
    assert [c.to_pylist() for c in codec.decode(codec.encode(columns))] == [c.to_pylist() for c in columns]


@given(st.lists(st.integers(-(1 << 63), (1 << 63) - 1), min_size=1, max_size=5))
def test_a_sum_of_integers_is_right_or_refused(values):
    operator = Aggregate({"user": "string"}, {"s": "sum(i)"}, {"i": "bigint"})
    records = pa.table({"bin": pa.array([0] * len(values), pa.int32()), "key": pa.array([b"a"] * len(values)),
                        "user": ["a"] * len(values), "i": pa.array(values, pa.int64())})  # fmt: skip
    with tempfile.TemporaryDirectory() as folder, Store.open(Path(folder) / "w") as store, store.begin() as txn:
        try:
            found = json.loads(operator.apply(records, BinState(txn, BINS)).payloads[0])["s"]
        except OperatorError:
            assert not -(1 << 63) <= sum(values) < 1 << 63
        else:
            assert found == sum(values)
