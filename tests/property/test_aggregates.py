"""Aggregates of any records, in any epochs, are those of a computation over plain Python values by Spark's rules."""

import json
import math
import tempfile
from decimal import ROUND_HALF_UP, Decimal, localcontext
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


def folded(operator: Aggregate, kind: str, epochs: list[list]) -> dict | None:
    """The last row of a key whose column c has these values by epoch, beside one with a 1; None: one does not fit."""
    with tempfile.TemporaryDirectory() as folder, Store.open(Path(folder) / "w") as store:
        for values in epochs:
            one = 1 if kind == "bigint" else Decimal(1)
            one = None if kind == "decimal(11,11)" else one
            users, column = ["a"] * len(values) + ["b"], pa.array([*values, one], arrow_type(kind))
            keys = pa.array([user.encode() for user in users])
            records = pa.table({"bin": pa.array([0] * len(users), pa.int32()), "key": keys, "user": users, "c": column})
            with store.begin() as txn:
                try:
                    payload, _ = operator.apply(records, BinState(txn, BINS)).payloads
                except OperatorError:
                    return None
    return json.loads(payload, parse_float=Decimal)


@given(st.lists(st.integers(-(1 << 63), (1 << 63) - 1), min_size=1, max_size=5), st.booleans())
def test_a_sum_of_integers_is_right_or_refused_or_wraps(values, ansi):
    found = folded(Aggregate({"user": "string"}, {"s": "sum(c)"}, {"c": "bigint"}, ansi=ansi), "bigint", [values])
    wrapped = (sum(values) + (1 << 63)) % (1 << 64) - (1 << 63)
    assert found == (None if ansi and wrapped != sum(values) else {"user": "a", "s": wrapped})


LARGE = st.sampled_from([10**38 - 1, 6 * 10**37, 3 * 10**37, 10**34])
DIGITS = LARGE | LARGE.map(lambda n: -n) | st.integers(-(10**38) + 1, 10**38 - 1) | st.integers(-9, 9)


@given(
    st.lists(st.lists(st.none() | DIGITS, min_size=1, max_size=4), min_size=1, max_size=3),
    st.booleans(),
    st.sampled_from(
        ["decimal(38,10)", "decimal(38,0)", "decimal(28,2)", "decimal(10,2)", "decimal(8,2)", "decimal(11,11)"]
    ),
)
def test_sums_and_averages_of_decimals_that_do_not_fit_are_refused_or_null_for_ever(epochs, ansi, kind):
    """Nulls alone give null; a sum beyond 38 digits gives null in its epoch and in every later one."""
    precision, scale = map(int, kind[8:-1].split(","))
    operator = Aggregate({"user": "string"}, {"s": "sum(c)", "a": "avg(c)"}, {"c": kind}, ansi=ansi)
    so_far: list[Decimal] = []
    with localcontext(prec=100):
        fitting = [
            [None if n is None else int(math.copysign(1, n)) * (abs(n) % 10**precision) for n in own] for own in epochs
        ]
        epochs = [[None if n is None else Decimal(n).scaleb(-scale) for n in own] for own in fitting]
        bound, mean_bound = Decimal(10) ** (38 - scale), Decimal(10) ** (38 - min(38, scale + 4))
        lost = False
        wanted: dict | None = {}
        for values in epochs:
            so_far += [value for value in values if value is not None]
            lost |= abs(sum(so_far)) >= bound
            mean = None
            if so_far and not lost:
                mean = (sum(so_far) / len(so_far)).quantize(Decimal(1).scaleb(-min(38, scale + 4)), ROUND_HALF_UP)
            fits = mean is not None and abs(mean) < mean_bound
            if ansi and so_far and not fits:
                wanted = None
                break
            known = {"s": sum(so_far) if so_far and not lost else None, "a": mean if fits else None}
            wanted = {"user": "a", **{name: value for name, value in known.items() if value is not None}}
    assert folded(operator, kind, epochs) == wanted


def test_a_sum_of_decimals_goes_on_from_sparks_buffers():
    """Spark's state of no value is (0, empty), and that of a sum that did not fit (null, not empty)."""
    operator = Aggregate({"user": "string"}, {"s": "sum(c)"}, {"c": "decimal(10,2)"}, ansi=False)
    rows = [operator.dump(value) for value in ((Decimal("0.00"), True), (None, False), (Decimal("1.50"), False))]
    keys = pa.table({"user": ["none", "beyond", "some"]})
    written = operator.payloads(keys, operator.buffers_of(rows))
    assert written == [b'{"user":"none"}', b'{"user":"beyond"}', b'{"user":"some","s":1.50}']
    strict = Aggregate({"user": "string"}, {"s": "sum(c)"}, {"c": "decimal(10,2)"})
    with pytest.raises(OperatorError, match="arithmetic overflow"):
        strict.payloads(keys, strict.buffers_of(rows))
