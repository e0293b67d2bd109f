"""State of aggregates belongs to the aggregates that it was made by: other ones are refused."""

import pickle

import pytest

from impls.driver.checkpoint import Checkpoint
from impls.errors import UsageError
from impls.operators import Aggregate
from impls.operators.aggregates.measures import Measure
from impls.operators.aggregates.rows import RowCodec
from impls.operators.pipeline import replaced

TYPES = {"debit": "bigint", "credit": "bigint", "score": "double"}
BOTH = {"debit": "sum(debit)", "credit": "sum(credit)"}


def by_user(values):
    return Aggregate({"user": "string"}, values, TYPES)


@pytest.mark.parametrize("other", [
    {"credit": "sum(credit)", "debit": "sum(debit)"},
    {"debit": "sum(credit)", "credit": "sum(debit)"},
    {"a": "sum(debit)", "b": "sum(debit)"},
    {"debit": "sum(debit)", "credit": "max(credit)"},
    {"debit": "sum(debit)"},
])  # fmt: skip
def test_a_select_whose_buffers_have_another_meaning_is_refused_at_a_start_and_as_a_change(tmp_path, other):
    Checkpoint(tmp_path, {}, operator=by_user(BOTH)).close()
    with pytest.raises(UsageError, match=r"was made with operator.aggregates=.*'debit', 'sum', 'debit', 'bigint'"):
        Checkpoint(tmp_path, {}, operator=by_user(other))
    with pytest.raises(UsageError, match="Aggregate cannot replace Aggregate"):
        replaced(by_user(BOTH), by_user(other))


def test_the_same_select_goes_on(tmp_path):
    for text in ("sum(debit)", " SUM( `debit` ) "):
        Checkpoint(tmp_path, {}, operator=by_user({"debit": text})).close()


def test_aggregates_of_before_there_was_an_ansi_setting_load():
    """Fields of a pickle are in order, and `ansi` is the last."""
    made = Measure.parse("n", "sum(a)", {"a": "int"})
    old = Measure.__new__(Measure)
    old.__setstate__(["n", "sum", "a", "int"])
    assert old == made
    assert pickle.loads(pickle.dumps(made)) == made


def test_aggregates_that_kept_decimals_otherwise_are_refused():
    made = Aggregate({"user": "string"}, {"s": "sum(a)"}, {"a": "decimal(20,2)"})
    old = Aggregate.__new__(Aggregate)
    with pytest.raises(UsageError, match="begin anew"):
        old.__setstate__({**vars(made), "_codec": RowCodec(made.codec.kinds[:1])})
    assert pickle.loads(pickle.dumps(made)).buffers == made.buffers
