"""State as rows of Spark's column families: what was stored is there, with what Spark keeps beside it."""

from collections import defaultdict
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as t

from impls.errors import UsageError
from impls.processor.encoding import Encoding, Variable
from impls.processor.kept import History, KeptVariable
from impls.releasing.families import ProcessorRows, ProcessorState, Widening, checked, wide_schema


def struct(**fields):
    return t.StructType([t.StructField(name, kind) for name, kind in fields.items()])


KEY = struct(user=t.StringType(), kind=t.IntegerType())
ROW = struct(n=t.LongType(), at=t.TimestampType(), inner=struct(a=t.StringType()))
FIELD = struct(shop=t.StringType())
TIMES = st.integers(-(1 << 40), 1 << 40)
USERS = st.text(max_size=20) | st.none() | st.sampled_from(["u" * 300, "u" * 300 + "v"])
KEYS = st.tuples(USERS, st.integers(-5, 5) | st.none())
MICROS = 1_767_225_600_000_001
NOON = datetime.fromtimestamp(MICROS // 1_000_000).replace(microsecond=1)  # noqa: DTZ006 - as pyspark gives it


def variable(kind, ttl=None, name="v"):
    return Variable(name, kind, ROW, FIELD if kind == "map" else None, ttl)


def state_of(*variables, timers="none", kept=None, deleted=()):
    own = {one.name: one for one in variables}
    if kept is None:
        kept = {
            name: KeptVariable(one.kind, History((ROW,), 0), one.key_schema, one.ttl_ms is not None)
            for name, one in own.items()
        }
    return ProcessorState(KEY, own, kept, timers, deleted)


def families(state, entries):
    """Rows by family, each (grouping key, key, value), in the order of their places."""
    found = defaultdict(list)
    for row in sorted(ProcessorRows(state).rows(sorted(entries)), key=lambda row: row.place):
        found[row.family].append((row.grouping, row.key, row.value))
    assert found.keys() <= {family.name for family in state.families()}
    return dict(found)


def row(n):
    return (n, NOON, None if n % 2 else (str(n),))


def inside(n):
    return (n, MICROS, None if n % 2 else (str(n),))


def test_a_value_is_one_row_and_with_a_time_to_live_two():
    encoding = Encoding(KEY)
    key = encoding.key(("ann", None))
    plain = encoding.value(variable("value"), key, row(3))
    assert families(state_of(variable("value")), plain) == {"v": [(("ann", None), ("ann", None), inside(3))]}
    lives = encoding.value(variable("value", 5), key, row(2), 1_000)
    assert families(state_of(variable("value", 5)), lives) == {
        "v": [(("ann", None), ("ann", None), (inside(2), 1_000))],
        "$ttl_v": [(("ann", None), (1_000, ("ann", None)), (None,))],
    }


@given(st.dictionaries(KEYS, st.lists(TIMES, min_size=1, max_size=12), min_size=1, max_size=4), st.booleans())
def test_items_come_in_their_order_with_their_number_and_their_earliest_expiry(lists, lives):
    encoding, of, entries = Encoding(KEY), variable("list", 5 if lives else None), []
    for key, times in lists.items():
        rows = [row(n) for n in range(len(times))]
        entries += encoding.items(of, encoding.key(key), rows, times if lives else None)
    found = families(state_of(of), entries)
    for key, times in lists.items():
        own = [value for _, at, value in found["v"] if at == key]
        assert own == [(inside(n), time) if lives else inside(n) for n, time in enumerate(times)]
        assert (key, key, (len(times),)) in found["$count_v" if lives else "$rowCounter_v"]
        if lives:
            assert (key, key, (min(times),)) in found["$min_v"]
            assert (key, (min(times), key), (None,)) in found["$ttl_v"]
    assert len(found["$count_v" if lives else "$rowCounter_v"]) == len(lists)


@pytest.mark.parametrize("shop", ["s", "s" * 400])
@pytest.mark.parametrize("ttl", [None, 5])
def test_a_field_has_both_keys_however_long_its_own_is(shop, ttl):
    encoding, of, key = Encoding(KEY), variable("map", ttl), ("ann", 1)
    entries = encoding.field(of, encoding.key(key), (shop,), row(4), None if ttl is None else 77)
    found, whole = families(state_of(of), entries), (key, (shop,))
    assert found["v"] == [(key, whole, inside(4) if ttl is None else (inside(4), 77))]
    assert found.get("$ttl_v") == (None if ttl is None else [(key, (77, whole), (None,))])


@given(st.dictionaries(KEYS, st.lists(TIMES, max_size=5), max_size=4))
def test_a_timer_is_in_both_families(timers):
    encoding, entries = Encoding(KEY), []
    for key, times in timers.items():
        entries += encoding.timers(encoding.key(key), times)
    found = families(state_of(timers="eventtime"), entries)
    wanted = {(key, time) for key, times in timers.items() for time in times}
    assert {(key, at[1]) for key, at, _ in found.get("$eventTimers_keyToTimestamp", [])} == wanted
    assert {(key, at[0]) for key, at, _ in found.get("$eventTimers_timestampToKey", [])} == wanted


@pytest.mark.parametrize("ttl", [None, 5])
@pytest.mark.parametrize("kind", ["value", "list", "map"])
def test_a_key_is_whole_however_long_it_is(kind, ttl):
    encoding, of, keys = Encoding(KEY), variable(kind, ttl), [("u" * 300 + last, 1) for last in "ab"]
    expires, entries = None if ttl is None else 77, []
    for n, key in enumerate(keys):
        raw = encoding.key(key)
        match kind:
            case "value":
                entries += encoding.value(of, raw, row(n), expires)
            case "list":
                entries += encoding.items(of, raw, [row(n), row(2)], None if ttl is None else [77, 77])
            case _:
                entries += encoding.field(of, raw, ("f" * 200,), row(n), expires)
    found = families(state_of(of), entries)
    assert {key for key, _, _ in found["v"]} == set(keys)
    for n, key in enumerate(keys):
        whole = (key, ("f" * 200,)) if kind == "map" else key
        assert (key, whole, inside(n) if ttl is None else (inside(n), 77)) in found["v"]


def test_rows_of_an_earlier_schema_are_read_as_those_of_the_spark_query_and_deleted_ones_are_left_out():
    encoding, old = Encoding(KEY), struct(n=t.IntegerType())
    entries = encoding.value(Variable("v", "value", old), encoding.key(("a", 1)), (3,))
    entries += encoding.value(variable("value", name="gone"), encoding.key(("a", 1)), row(1))
    of = Variable("v", "value", struct(n=t.DoubleType(), more=t.StringType()))
    kept = {"v": KeptVariable("value", History((old, of.schema), 1), None, expires=False)}
    assert families(state_of(of, kept=kept, deleted={"gone"}), entries) == {"v": [(("a", 1), ("a", 1), (3.0, None))]}


@pytest.mark.parametrize(
    ("own", "why"),
    [
        (variable("value", name="other"), "has the state variable v, and the Spark query has no such one"),
        (variable("list"), "is a list without a time to live in the Spark query, and a value without"),
        (variable("value", 5), "is a value with a time to live in the Spark query, and a value without"),
        (Variable("v", "value", struct(n=t.LongType())), "has rows of struct<n:bigint> in the Spark query, and of"),
    ],
)
def test_variables_that_differ_are_refused(own, why):
    kept = {"v": KeptVariable("value", History((ROW,), 0), None, expires=False)}
    with pytest.raises(UsageError, match=why):
        checked(state_of(own, kept=kept))


def test_rows_that_are_wider_than_those_of_the_spark_query_are_refused():
    narrow, wide = struct(n=t.IntegerType()), struct(n=t.LongType())
    kept = {"v": KeptVariable("value", History((narrow, wide), 1), None, expires=False)}
    assert checked(state_of(Variable("v", "value", wide), kept=kept))
    with pytest.raises(UsageError, match="rows in the checkpoint that are wider: its field n was bigint and is int"):
        checked(state_of(Variable("v", "value", narrow), kept=kept))


def test_keys_of_a_map_of_another_type_are_refused():
    kept = {"v": KeptVariable("map", History((ROW,), 0), struct(shop=t.IntegerType()), expires=False)}
    with pytest.raises(UsageError, match="has keys of another type"):
        checked(state_of(variable("map"), kept=kept))


def test_a_wide_row_has_its_family_and_nulls_for_the_others():
    state = state_of(variable("value"), variable("list", name="w"))
    names = [family.name for family in state.families()]
    widen, schema = Widening(state.families()), wide_schema(KEY, state.families())
    assert names == ["v", "w", "$rowCounter_w"]
    encoding = Encoding(KEY)
    (one,) = ProcessorRows(state).rows(encoding.value(variable("value"), encoding.key(("a", 1)), row(1)))
    assert widen(one) == (0, 0, ("a", 1), ("a", 1), inside(1), None, None, None, None)
    assert schema.names == ["family", "place", "grouping", "key0", "value0", "key1", "value1", "key2", "value2"]
