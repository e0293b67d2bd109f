"""Aggregates are matched with the buffers of Spark's state, from which the types of their columns follow."""

import pytest

from impls.adoption.processors import typed_by_state
from impls.errors import UsageError
from impls.operators import Aggregate


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ({"n": "count(*)"}, [("count", "bigint")]),
        ({"n": "count(a)", "t": "sum(a)"}, [("count", "bigint"), ("sum", "bigint")]),
        ({"a": "avg(a)", "h": "max(a)"}, [("sum", "double"), ("count", "bigint"), ("max", "int")]),
        ({"a": "avg(a)", "s": "sum(a)"}, [("sum", "double"), ("count", "bigint"), ("sum", "bigint")]),
        (
            {"a": "avg(m)", "s": "sum(m)"},
            [("sum", "decimal(22,2)"), ("count", "bigint"), ("sum", "decimal(22,2)"), ("isEmpty", "boolean")],
        ),
        ({"h": "max(s)", "l": "min(t)"}, [("max", "string"), ("min", "timestamp")]),
        ({"s": "sum(m)", "l": "min(m)"}, [("sum", "bigint"), ("min", "decimal(8,2)")]),
        (
            {"a": "avg(m)", "s": "sum(m)"},
            [("sum", "double"), ("count", "bigint"), ("sum", "decimal(20,2)"), ("isEmpty", "boolean")],
        ),
    ],
)
def test_the_types_that_state_tells_give_the_same_buffers(values, found):
    operator = Aggregate({"user": "string"}, values, typed_by_state(values, found))
    assert [(buffer.name, buffer.type) for buffer in operator.buffers] == found


def test_short_decimals_are_known_by_their_types_alone():
    values, found = {"s": "sum(a)"}, [("sum", "bigint")]
    assert typed_by_state(values, found) == {"a": "bigint"}
    assert typed_by_state(values, found, {"a": "decimal(8,2)"}) == {"a": "decimal(8,2)"}
    of = [
        Aggregate({"user": "string"}, values, {"a": kind}).identity()
        for kind in ("bigint", "decimal(8,2)", "decimal(8,3)")
    ]
    assert len({str(one) for one in of}) == 3, "a start with another type is refused"
    with pytest.raises(UsageError, match="which is not what"):
        typed_by_state(values, found, {"a": "decimal(9,2)"})


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ({"n": "sum(a)"}, [("count", "bigint")]),
        ({"n": "count(*)"}, [("count", "bigint"), ("sum", "bigint")]),
        ({"n": "count(*)", "s": "sum(a)"}, [("count", "bigint")]),
        ({"n": "count(*)", "s": "sum(a)"}, [("sum", "bigint"), ("count", "bigint")]),
        ({"s": "sum(a)", "h": "max(a)"}, [("sum", "double"), ("max", "int")]),
        ({"s": "sum(m)", "h": "max(a)"}, [("sum", "decimal(20,2)"), ("max", "int")]),
    ],
)
def test_other_aggregates_than_the_querys_are_refused(values, found):
    with pytest.raises(UsageError, match="which is not what"):
        typed_by_state(values, found)
