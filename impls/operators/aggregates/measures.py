"""One aggregate of a query: what it reads, the buffers that state keeps of it, how records change them, its result.

The rules are Spark's: nulls are passed over, an aggregate of none is null, a count 0; NaN is above all numbers. A sum
that does not fit is an error under `spark.sql.ansi.enabled`, Spark's default; else one of integers wraps at 64 bits,
and one of decimals is null for ever. Buffers have Spark's order, types and meaning, so that they can be taken from
Spark's state: a sum of decimals begins as 0 with `isEmpty`, and is null, without being empty, once it did not fit.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import pyarrow as pa

from impls.errors import UsageError
from impls.operators.aggregates import folds
from impls.operators.aggregates.folds import Groups
from impls.operators.aggregates.rows import DECIMAL_DIGITS, arrow_type, decimal_of

_TEXT = re.compile(r"\s*(count|sum|min|max|avg)\s*\(\s*(\*|1|`(?:[^`]|``)+`|[^()`*]+?)\s*\)\s*", re.I)
SUM_DIGITS, _MEAN_DIGITS = 10, 4  # by which a sum and a mean of decimals are longer than they are
_LONG_DIGITS, _DOUBLE_DIGITS = 18, 15  # up to which Spark computes them as long and double (`DecimalAggregates`)
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
    if column.startswith("`"):
        return function, column[1:-1].replace("``", "`")
    return function, "" if column in {"*", "1"} else column


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
        ansi: whether what does not fit is an error, as under `spark.sql.ansi.enabled`.
    """

    name: str
    function: str
    column: str = ""
    type: str = ""
    ansi: bool = True

    def __setstate__(self, state: list[Any]) -> None:
        """Takes the fields in order; one that was pickled before there was `ansi` has it."""
        for field, value in zip(fields(self), [*state, True], strict=False):
            object.__setattr__(self, field.name, value)

    @classmethod
    def parse(cls, name: str, text: str, types: Mapping[str, str], *, ansi: bool = True) -> "Measure":
        """Reads an aggregate as SQL has it, given the types of columns.

        >>> Measure.parse("total", "sum(amount)", {"amount": "int"})
        Measure(name='total', function='sum', column='amount', type='int', ansi=True)

        Raises UsageError for another expression, an unknown column, or a type that the function does not take.
        """
        function, column = function_and_column(text)
        if not column:
            return cls(name, function, ansi=ansi)
        if column not in types:
            raise UsageError(f"The aggregate {text!r} reads the column {column!r}, whose type is not given.")
        kind = types[column]
        if function in {"sum", "avg"} and kind not in _WHOLE | _REAL and not decimal_of(kind):
            raise UsageError(f"The aggregate {text!r} needs numbers, but {column!r} is of type {kind}.")
        arrow_type(kind)
        return cls(name, function, column, kind, ansi)

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """The columns of its state, in Spark's order."""
        match self.function:
            case "count":
                return (Buffer("count", "bigint"),)
            case "sum" if self._wide:
                return Buffer("sum", self._sum_type), Buffer("isEmpty", "boolean")
            case "sum":
                return (Buffer("sum", "bigint" if self.type in _WHOLE or decimal_of(self.type) else "double"),)
            case "avg":
                return Buffer("sum", self._sum_type if self._wide else "double"), Buffer("count", "bigint")
        return (Buffer(self.function, self.type),)

    @property
    def result_type(self) -> str:
        """Spark's type of the result."""
        if self.function != "avg":
            return self._sum_type if self.function == "sum" else self.buffers[0].type
        precision, scale = decimal_of(self.type) or (0, 0)
        return (
            f"decimal({min(DECIMAL_DIGITS, precision + _MEAN_DIGITS)},{min(DECIMAL_DIGITS, scale + _MEAN_DIGITS)})"
            if precision
            else "double"
        )

    @property
    def _sum_type(self) -> str:
        if decimal := decimal_of(self.type):
            return f"decimal({min(DECIMAL_DIGITS, decimal[0] + SUM_DIGITS)},{decimal[1]})"
        return "bigint" if self.type in _WHOLE else "double"

    @property
    def _wide(self) -> bool:
        """Whether sums in state are decimals."""
        precision, _ = decimal_of(self.type) or (0, 0)
        return precision > (_LONG_DIGITS - SUM_DIGITS if self.function == "sum" else _DOUBLE_DIGITS - _MEAN_DIGITS)

    @property
    def unscaled(self) -> bool:
        """Whether sums in state are of decimals without their point, as Spark has those of short ones."""
        return self.function in {"sum", "avg"} and decimal_of(self.type) is not None and not self._wide

    def fold(self, before: Sequence[pa.Array], values: pa.Array | None, groups: Groups) -> list[pa.Array]:
        """Returns the buffers of groups behind their records.

        Raises OperatorError when a sum does not fit its type.

        Args:
            before: the buffers so far, nulls for a group without any.
            values: the column's values, None for count(*).
            groups: to which group each value belongs.
        """
        if values is not None and self.unscaled:
            values = folds.unscaled(values)
        match self.function:
            case "count":
                return [folds.count(before[0], values, groups)]
            case "sum" if self._wide:
                return [*folds.decimal_total(before[0], folds.empty_of(before[1]), values, groups, ansi=self.ansi)]
            case "sum":
                return [folds.total(before[0], values, groups, arrow_type(self.buffers[0].type), ansi=self.ansi)]
            case "avg":
                counts = folds.count(before[1], values, groups)
                if not self._wide:
                    return [folds.total(before[0], values, groups, pa.float64()), counts]
                none = folds.numbers_of(before[1]) == 0
                return [folds.decimal_total(before[0], none, values, groups, ansi=self.ansi)[0], counts]
        return [folds.extreme(before[0], values, groups, arrow_type(self.type), highest=self.function == "max")]

    def result(self, buffers: Sequence[pa.Array]) -> pa.Array:
        """Returns the aggregate of groups from their buffers; raises OperatorError for one that does not fit."""
        kind = arrow_type(self.result_type)
        match self.function:
            case "sum" if self._wide:
                return folds.decimal_sum(buffers[0], buffers[1], ansi=self.ansi)
            case "avg" if self._wide:
                return folds.decimal_quotient(buffers[0], buffers[1], kind, ansi=self.ansi)
            case "sum" if self.unscaled:
                return folds.scaled(buffers[0], kind, ansi=self.ansi)
            case "avg" if self.unscaled:
                return folds.rounded(folds.quotient(buffers[0], buffers[1]), kind.scale - _MEAN_DIGITS, kind)
            case "avg":
                return folds.quotient(buffers[0], buffers[1])
        return buffers[0]
