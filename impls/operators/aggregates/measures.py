"""One aggregate of a query: what it reads, the buffers that state keeps of it, how records change them, its result.

The rules are Spark's: nulls are passed over, an aggregate of none is null, a count 0; NaN is above all numbers; a sum
of integers is 64 bits wide, and one that does not fit is an error (`spark.sql.ansi.enabled`, Spark's default). Buffers
have Spark's order and types, so that they can be taken from Spark's state.

Sums of floating-point numbers are added one after the other, in the order of the records and behind what was there, so
they do not depend on how records are split into epochs, nor on the host.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from impls.errors import OperatorError, UsageError
from impls.operators.aggregates.rows import DECIMAL_DIGITS, arrow_type, decimal_of

_WIDE = 76  # digits of Arrow's longest decimal
_LOW = np.int64(0xFFFFFFFF)
_EXACT = Context(prec=120, rounding=ROUND_HALF_UP)


@dataclass(frozen=True, slots=True)
class Groups:
    """Which of `number` groups each record belongs to: int64, shape (n,)."""

    of: NDArray[np.int64]
    number: int


def count(before: pa.Array, values: pa.Array | None, groups: Groups) -> pa.Array:
    """Returns how many values there are that are not null; without values, how many records."""
    members = groups.of if values is None else groups.of[np.asarray(values.is_valid())]
    return pa.array(_numbers(before) + np.bincount(members, minlength=groups.number))


def total(before: pa.Array, values: pa.Array | None, groups: Groups, kind: pa.DataType) -> pa.Array:
    """Returns sums of type `kind`, null where there is no value; raises OperatorError for one that does not fit."""
    assert values is not None, "a sum reads a column"
    if pa.types.is_decimal(kind):
        return _decimal_total(before, values, groups, kind)
    valid, there = np.asarray(values.is_valid()), np.asarray(before.is_valid())
    members = groups.of[valid]
    seen = there | (np.bincount(members, minlength=groups.number) > 0)
    if pa.types.is_integer(kind):
        sums = _whole_total(_numbers(before), values.drop_null().cast(pa.int64()).to_numpy(), members)
    else:
        own = before.drop_null().to_numpy()
        weights = np.concatenate([own, values.drop_null().cast(pa.float64()).to_numpy()])
        places = np.concatenate([np.flatnonzero(there), members])
        sums = np.bincount(places, weights, groups.number)  # adds one after the other
    return pa.array(sums, kind, mask=~seen)


def _whole_total(before: NDArray[np.int64], values: NDArray[np.int64], members: NDArray[np.int64]) -> NDArray[np.int64]:
    """Adds upper and lower halves on their own, so that a sum beyond 64 bits is noticed."""
    high, low = before >> 32, before & _LOW
    np.add.at(high, members, values >> 32)
    np.add.at(low, members, values & _LOW)
    high += low >> 32
    if ((high < -(1 << 31)) | (high >= 1 << 31)).any():
        raise OperatorError("A sum is beyond 64 bits: Spark calls it an arithmetic overflow, and so does this query.")
    return (high << 32) + (low & _LOW)


def _decimal_total(before: pa.Array, values: pa.Array, groups: Groups, kind: pa.DataType) -> pa.Array:
    wide = pa.decimal256(_WIDE, kind.scale)
    parts = pa.concat_arrays([before.cast(wide), values.cast(wide)])
    places = pa.array(np.concatenate([np.arange(groups.number), groups.of]))
    sums = pa.table({"at": places, "v": parts}).group_by("at", use_threads=False).aggregate([("v", "sum")])
    try:  # groups are in the order of their first row, which is that of `before`
        return sums.column("v_sum").combine_chunks().cast(kind)
    except pa.ArrowInvalid as error:
        raise OperatorError(f"A sum is beyond {kind}: Spark calls it an arithmetic overflow.") from error


def _extreme(
    before: pa.Array, values: pa.Array | None, groups: Groups, kind: pa.DataType, *, highest: bool
) -> pa.Array:
    """Returns the lowest or highest values, null where there is none."""
    assert values is not None, "min and max read a column"
    parts = pa.concat_arrays([before, values.cast(kind)])
    there = np.asarray(parts.is_valid())
    places = np.concatenate([np.arange(groups.number), groups.of])[there]
    kept = parts.drop_null()
    chosen = _chosen(kept, places, highest=highest)
    found = np.full(groups.number, -1, np.int64)
    found[places[chosen]] = chosen
    return kept.take(pa.array(found, mask=found < 0))


def _chosen(values: pa.Array, places: NDArray[np.int64], *, highest: bool) -> NDArray[np.int64]:
    """Returns the index of each group's lowest or highest value, of equal ones the first.

    NaN is above all numbers; strings are ordered by their bytes.
    """
    if not len(values):
        return np.empty(0, np.int64)
    order = "descending" if highest else "ascending"
    columns = {"at": pa.array(places), "v": values.cast(pa.binary()) if pa.types.is_string(values.type) else values}
    if pa.types.is_floating(values.type):
        columns = {"at": columns["at"], "nan": pc.is_nan(values), "v": values}
    keys = [(name, "ascending" if name == "at" else order) for name in columns]
    found = pc.sort_indices(pa.table(columns), sort_keys=keys).to_numpy().astype(np.int64)
    firsts: NDArray[np.int64] = found[np.insert(np.flatnonzero(np.diff(places[found])) + 1, 0, 0)]
    return firsts


def _quotient(sums: pa.Array, counts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Returns averages, null where nothing was counted; those of decimals are rounded half up, as Spark's."""
    numbers = _numbers(counts)
    if not pa.types.is_decimal(kind):
        divided = sums.fill_null(0.0).to_numpy()
        with np.errstate(invalid="ignore", divide="ignore"):
            return pa.array(divided / np.maximum(numbers, 1), kind, mask=numbers == 0)
    step = Decimal(1).scaleb(-kind.scale)
    averages = [
        None if not number or value is None else _EXACT.quantize(_EXACT.divide(value, Decimal(number)), step)
        for value, number in zip(sums.to_pylist(), numbers.tolist(), strict=True)
    ]
    return pa.array(averages, kind)


def _numbers(column: pa.Array) -> NDArray[np.int64]:
    numbers: NDArray[np.int64] = column.fill_null(0).to_numpy().astype(np.int64)
    return numbers


_TEXT = re.compile(r"\s*(count|sum|min|max|avg)\s*\(\s*(\*|1|`[^`]+`|[^()`*]+?)\s*\)\s*", re.I)
_WHOLE = {"tinyint", "smallint", "int", "bigint"}
_REAL = {"float", "double"}


def function_and_column(text: str) -> tuple[str, str]:
    """Reads an aggregate as SQL has it; the column is "" for count(*).

    >>> function_and_column("AVG(`amount`)")
    ('avg', 'amount')

    Raises UsageError for another expression.
    """
    found = _TEXT.fullmatch(text)
    if found is None:
        raise UsageError(f"The aggregate {text!r} is not count, sum, min, max or avg of one column, or count(*).")
    function, column = found[1].lower(), found[2]
    if column in {"*", "1"} and function != "count":
        raise UsageError(f"The aggregate {text!r} needs a column: only count takes all of them.")
    return function, "" if column in {"*", "1"} else column.strip("`")


@dataclass(frozen=True, slots=True)
class Buffer:
    """A column of an aggregate's state: Spark's name for it and Spark's type."""

    name: str
    type: str


@dataclass(frozen=True, slots=True)
class Measure:
    """An aggregate over a column.

    Attributes:
        name: of the result.
        function: count, sum, min, max or avg.
        column: the column that it reads, "" for count(*), which counts records.
        type: Spark's name of the column's type, "" for count(*).
    """

    name: str
    function: str
    column: str = ""
    type: str = ""

    @classmethod
    def parse(cls, name: str, text: str, types: Mapping[str, str]) -> "Measure":
        """Reads an aggregate as SQL has it, given the types of columns.

        >>> Measure.parse("total", "sum(amount)", {"amount": "int"})
        Measure(name='total', function='sum', column='amount', type='int')

        Raises UsageError for another expression, an unknown column, or a type that the function does not take.
        """
        function, column = function_and_column(text)
        if not column:
            return cls(name, function)
        if column not in types:
            raise UsageError(f"The aggregate {text!r} reads the column {column!r}, whose type is not given.")
        kind = types[column]
        if function in {"sum", "avg"} and kind not in _WHOLE | _REAL and not decimal_of(kind):
            raise UsageError(f"The aggregate {text!r} needs numbers, but {column!r} is of type {kind}.")
        arrow_type(kind)
        return cls(name, function, column, kind)

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """The columns of its state, in Spark's order."""
        match self.function:
            case "count":
                return (Buffer("count", "bigint"),)
            case "sum":
                return (Buffer("sum", self._sum_type),)
            case "avg":
                return Buffer("sum", self._sum_type if decimal_of(self.type) else "double"), Buffer("count", "bigint")
        return (Buffer(self.function, self.type),)

    @property
    def result_type(self) -> str:
        """Spark's type of the result."""
        if self.function != "avg":
            return self.buffers[0].type
        precision, scale = decimal_of(self.type) or (0, 0)
        return (
            f"decimal({min(DECIMAL_DIGITS, precision + 4)},{min(DECIMAL_DIGITS, scale + 4)})" if precision else "double"
        )

    @property
    def _sum_type(self) -> str:
        if decimal := decimal_of(self.type):
            return f"decimal({min(DECIMAL_DIGITS, decimal[0] + 10)},{decimal[1]})"
        return "bigint" if self.type in _WHOLE else "double"

    def fold(self, before: Sequence[pa.Array], values: pa.Array | None, groups: Groups) -> list[pa.Array]:
        """Returns the buffers of groups behind their records.

        Raises OperatorError when a sum does not fit its type.

        Args:
            before: the buffers so far, nulls for a group without any.
            values: the column's values, None for count(*).
            groups: to which group each value belongs.
        """
        kinds = [arrow_type(buffer.type) for buffer in self.buffers]
        match self.function:
            case "count":
                return [count(before[0], values, groups)]
            case "sum":
                return [total(before[0], values, groups, kinds[0])]
            case "avg":
                sums = total(before[0], values, groups, kinds[0])
                return [sums, count(before[1], values, groups)]
        return [_extreme(before[0], values, groups, kinds[0], highest=self.function == "max")]

    def result(self, buffers: Sequence[pa.Array]) -> pa.Array:
        """Returns the aggregate of groups from their buffers."""
        if self.function != "avg":
            return buffers[0]
        return _quotient(buffers[0], buffers[1], arrow_type(self.result_type))
