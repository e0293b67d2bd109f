"""Schemas of state that change: what is read of earlier rows, and what is refused."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from processing import Given, ProcessorRun, schema
from pyspark.sql import types as t
from pyspark.sql.streaming import StatefulProcessor
from timed import BINS, close_all

from impls.errors import UsageError
from impls.processor.encoding import Variable
from impls.processor.kept import (
    LAST,
    EvolvedRows,
    History,
    check_kept,
    converter,
    deleted_variables,
    kept_settings,
    kept_variables,
)
from impls.processor.rows import StateRowCodec

_INNER = t.StructType([t.StructField("a", t.IntegerType()), t.StructField("b", t.StringType())])
_WIDER = t.StructType([t.StructField("b", t.StringType()), t.StructField("a", t.LongType())])
_SETTINGS = {"output_mode": "update"}
_OUTPUT = "key string, total long, counted long"


def struct(**kinds: t.DataType) -> t.StructType:
    return t.StructType([t.StructField(name, kind) for name, kind in kinds.items()])


def value(*schemas: t.StructType, kind: Any = "value", **more: Any) -> list[Variable]:
    return [Variable("v", kind, schema, **more) for schema in schemas]


def read(written: t.StructType, wanted: t.StructType, row: tuple[Any, ...]) -> tuple[Any, ...]:
    return EvolvedRows(History((written, wanted), 1)).decode(EvolvedRows(History((written, wanted), 0)).encode(row))


@given(st.integers(-(1 << 31), (1 << 31) - 1) | st.none(), st.text() | st.none())
def test_fields_are_added_removed_reordered_and_widened(n, text):
    written = struct(n=t.IntegerType(), gone=t.StringType(), kept=t.StringType())
    wanted = struct(kept=t.StringType(), new=t.DateType(), n=t.LongType())
    assert read(written, wanted, (n, "gone", text)) == (text, None, n)


def test_structs_within_lists_maps_and_structs_change_too():
    written = struct(items=t.ArrayType(_INNER), map=t.MapType(t.StringType(), _INNER), one=_INNER)
    wanted = struct(one=_WIDER, map=t.MapType(t.StringType(), _WIDER), items=t.ArrayType(_WIDER))
    found = read(written, wanted, ([(1, "x"), None], {"k": (2, "y")}, (3, None)))
    assert found == ((None, 3), {"k": ("y", 2)}, [("x", 1), None])
    assert found[0].a == 3


@pytest.mark.parametrize(("given", "found"), [(t.FloatType(), 5.0), (t.DoubleType(), 5.0), (t.LongType(), 5)])
def test_a_number_becomes_a_wider_one(given, found):
    (got,) = read(struct(n=t.ShortType()), struct(n=given), (5,))
    assert got == found
    assert type(got) is type(found)


def test_an_integer_that_a_float_cannot_hold_is_rounded_as_a_float_is():
    schemas = struct(n=t.IntegerType()), struct(n=t.FloatType())
    assert read(*schemas, ((1 << 24) + 1,)) == (float(1 << 24),)


def test_rows_of_the_first_schema_are_those_of_a_variable_that_never_changed():
    schemas = struct(n=t.IntegerType()), struct(n=t.LongType())
    assert EvolvedRows(History(schemas, 0)).encode((1,)) == StateRowCodec(schemas[0]).encode((1,))


@pytest.mark.parametrize(
    ("written", "wanted", "field"),
    [
        (t.LongType(), t.IntegerType(), "n was bigint and is int"),
        (t.DoubleType(), t.FloatType(), "n was double and is float"),
        (t.StringType(), t.LongType(), "n was string and is bigint"),
        (t.ArrayType(_WIDER), t.ArrayType(_INNER), r"n\[\].a was bigint and is int"),
        (t.MapType(t.IntegerType(), _INNER), t.MapType(t.LongType(), _INNER), "n was map<int"),
    ],
)
def test_what_would_lose_something_is_refused(written, wanted, field):
    with pytest.raises(TypeError, match=field):
        converter(struct(n=written), struct(n=wanted))


def kept(folder, variable):
    """Returns the histories of a start that came to its first epoch."""
    found = check_kept(folder, _SETTINGS, {"v": variable})
    found.keep()
    return found.histories


def test_a_start_without_an_epoch_leaves_no_schema_behind(tmp_path):
    kept(tmp_path, value(struct(n=t.IntegerType()))[0])
    wider = check_kept(tmp_path, _SETTINGS, {"v": value(struct(n=t.LongType()))[0]})
    assert wider.histories["v"].current == 1
    assert kept(tmp_path, value(struct(n=t.IntegerType()))[0]) == {}


def test_a_start_that_another_one_has_overtaken_writes_nothing(tmp_path):
    late = check_kept(tmp_path, _SETTINGS, {"v": value(struct(n=t.IntegerType()))[0]})
    kept(tmp_path, value(struct(n=t.LongType()))[0])
    before_it = (tmp_path / "processor.json").read_bytes()
    with pytest.raises(UsageError, match="Another start has changed"):
        late.keep()
    assert (tmp_path / "processor.json").read_bytes() == before_it


@pytest.mark.parametrize("variable", [None, [], ["value", "struct<n:int>", None, False], ["value", [{}], None, False]])
def test_a_damaged_file_of_schemas_is_refused_with_its_name(tmp_path, variable):
    text = "" if variable is None else json.dumps({"settings": _SETTINGS, "variables": {"v": variable}})
    (tmp_path / "processor.json").write_text(text)
    with pytest.raises(UsageError, match=r"processor.json is damaged"):
        check_kept(tmp_path, _SETTINGS, {"v": value(struct(n=t.LongType()))[0]})


def test_the_checkpoint_keeps_every_schema_and_a_processor_may_come_back_to_one(tmp_path):
    first, second = struct(n=t.IntegerType()), struct(n=t.IntegerType(), more=t.StringType())
    for variable, expected in zip(value(first, first, second, first), (None, None, 1, 0), strict=True):
        found = kept(tmp_path, variable)
        assert (found["v"].current if found else None) == expected
    assert found["v"].schemas == (first, second)


@pytest.mark.parametrize(
    ("before", "now", "says"),
    [
        (
            value(struct(n=t.LongType())),
            value(struct(n=t.IntegerType())),
            "cannot be read as struct<n:int>: its field n",
        ),
        (value(struct(n=t.LongType())), value(struct(n=t.LongType()), kind="list"), "was a value .* is a list"),
        (value(struct(n=t.LongType())), value(struct(n=t.LongType()), ttl_ms=5), "with a time to live now"),
        (
            value(struct(n=t.IntegerType()), struct(), struct(n=t.LongType())),
            value(struct(n=t.StringType())),
            "its field n was int and is string",
        ),
    ],
)
def test_another_change_of_a_variable_is_refused_and_nothing_is_kept_of_it(tmp_path, before, now, says):
    for variable in before:
        kept(tmp_path, variable)
    before_it = (tmp_path / "processor.json").read_bytes()
    with pytest.raises(UsageError, match=says):
        kept(tmp_path, now[0])
    assert (tmp_path / "processor.json").read_bytes() == before_it


def test_a_variable_has_as_many_schemas_as_a_byte_before_a_row_tells_apart(tmp_path):
    for number in range(LAST + 1):
        found = kept(tmp_path, value(struct(**{f"n{number}": t.LongType()}))[0])
    rows = EvolvedRows(found["v"])
    assert rows.decode(rows.encode((7,))) == (7,)
    with pytest.raises(UsageError, match="91 schemas, which is the most"):
        kept(tmp_path, value(struct(other=t.LongType()))[0])


class Totals(StatefulProcessor):
    """Sums; the second version also counts."""

    schema = schema("total long")

    def init(self, handle):
        self._value = handle.getValueState("v", self.schema)

    def handleInputRows(self, key, rows, timerValues):  # noqa: N802, N803
        before = self._value.get() or (0,) * len(self.schema)
        total = before[0] + sum(row.n for row in rows)
        counts = ((before[1] or 0) + 1,) if len(self.schema) > 1 else ()
        self._value.update((total, *counts))
        yield t.Row(key=key[0], total=total, counted=counts[0] if counts else -1)

    def close(self):
        pass


class Counting(Totals):
    """The second version."""

    schema = schema("total long, counted long")


def test_state_goes_on_under_a_new_schema_while_bins_move(tmp_path):
    (first,), (second,) = value(Totals.schema), value(Counting.schema)
    kept(tmp_path / "kept", first)
    run, users = ProcessorRun(tmp_path, Given(Totals(), _OUTPUT)), [f"u{n}" for n in range(20)]
    try:
        run.values(*((user, 1) for user in users))
        histories = kept(tmp_path / "kept", second)
        run.given = Given(Counting(), _OUTPUT, histories=histories)
        run.operator = replace(run.operator, program=run.given.program)
        run.restart()
        run.move([1] * BINS)
        found = [sorted(map(str, run.values(*((user, 1) for user in users)))) for _ in range(6)]
        assert not run.controller.migrating
    finally:
        close_all()
    assert found == [
        sorted(str({"key": user, "total": 2 + turn, "counted": 1 + turn}) for user in users) for turn in range(6)
    ]


def test_a_variable_that_is_deleted_is_kept_as_such_until_it_is_made_again(tmp_path):
    first, other = value(struct(n=t.IntegerType()))[0], value(struct(n=t.IntegerType()))[0]
    check_kept(tmp_path, _SETTINGS, {"v": first}).keep()
    assert deleted_variables(tmp_path) == set()
    check_kept(tmp_path, _SETTINGS, {"w": other}, ["v", "never"]).keep()
    assert deleted_variables(tmp_path) == {"v", "never"}
    check_kept(tmp_path, _SETTINGS, {"w": other}).keep()
    assert deleted_variables(tmp_path) == {"v", "never"}
    assert kept_variables(tmp_path).keys() == {"v", "w"}
    check_kept(tmp_path, _SETTINGS, {"v": first}, ["v"]).keep()
    assert deleted_variables(tmp_path) == {"never"}
    assert kept_settings(tmp_path) == _SETTINGS
