"""Columns of buffers and values to columns of buffers and results: count, sum, min, max, avg of groups.

Sums of floating-point numbers are added one after the other, in the order of the records and behind what was there, so
they do not depend on how records are split into epochs, nor on the host.
"""

from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from impls.errors import OperatorError

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
    return pa.array(numbers_of(before) + np.bincount(members, minlength=groups.number))


def total(
    before: pa.Array, values: pa.Array | None, groups: Groups, kind: pa.DataType, *, ansi: bool = True
) -> pa.Array:
    """Returns sums of numbers that are no decimals, of type `kind`, null where there is no value.

    Raises OperatorError for one beyond 64 bits under `ansi`; else it wraps.
    """
    assert values is not None, "a sum reads a column"
    valid, there = np.asarray(values.is_valid()), np.asarray(before.is_valid())
    members = groups.of[valid]
    seen = there | (np.bincount(members, minlength=groups.number) > 0)
    if pa.types.is_integer(kind):
        sums = _whole_total(numbers_of(before), values.drop_null().cast(pa.int64()).to_numpy(), members, ansi=ansi)
    else:
        own = before.drop_null().to_numpy()
        weights = np.concatenate([own, values.drop_null().cast(pa.float64()).to_numpy()])
        places = np.concatenate([np.flatnonzero(there), members])
        sums = np.bincount(places, weights, groups.number)  # adds one after the other
    return pa.array(sums, kind, mask=~seen)


def _whole_total(
    before: NDArray[np.int64], values: NDArray[np.int64], members: NDArray[np.int64], *, ansi: bool
) -> NDArray[np.int64]:
    """Adds upper and lower halves on their own, so that a sum beyond 64 bits is noticed."""
    high, low = before >> 32, before & _LOW
    np.add.at(high, members, values >> 32)
    np.add.at(low, members, values & _LOW)
    high += low >> 32
    if ansi and ((high < -(1 << 31)) | (high >= 1 << 31)).any():
        raise OperatorError("A sum is beyond 64 bits: Spark calls it an arithmetic overflow, and so does this query.")
    return (high << 32) + (low & _LOW)


def decimal_total(
    before: pa.Array, empty: NDArray[np.bool_], values: pa.Array | None, groups: Groups, *, ansi: bool
) -> tuple[pa.Array, pa.Array]:
    """Returns sums of decimals, and which groups are still empty, whose sum is 0.

    A sum that does not fit is null, and stays so.

    Args:
        before: the sums so far; what it has for a group that is empty does not count.
        empty: which groups have had no value.
        values: decimals of the same scale at most.
        groups: to which group each value belongs.
        ansi: raise OperatorError for a sum that does not fit.
    """
    assert values is not None, "a sum reads a column"
    kind, wide = before.type, pa.decimal256(_WIDE, before.type.scale)
    over = ~empty & ~np.asarray(before.is_valid())
    zero = pa.scalar(Decimal(0).scaleb(-kind.scale), wide)
    begun = pc.if_else(pa.array(empty), zero, before.cast(wide)).fill_null(zero)
    places = pa.array(np.concatenate([np.arange(groups.number), groups.of]))
    parts = pa.table({"at": places, "v": pa.concat_arrays([begun, values.cast(wide)])})
    sums = parts.group_by("at", use_threads=False).aggregate([("v", "sum")])
    found = sums.column("v_sum").combine_chunks()  # groups are in the order of their first row, which is that of before
    bound = pa.scalar(Decimal(1).scaleb(kind.precision - kind.scale), wide)
    over |= np.asarray(pc.greater_equal(pc.abs(found), bound))
    if ansi and over.any():
        raise OperatorError(_beyond("A sum", kind))
    seen = np.bincount(groups.of[np.asarray(values.is_valid())], minlength=groups.number) > 0
    fitting = pc.if_else(pa.array(over), zero, found).cast(kind)  # which looks at what is behind a null too
    return pc.if_else(pa.array(over), pa.scalar(None, kind), fitting), pa.array(empty & ~seen)


def decimal_sum(sums: pa.Array, empty: pa.Array, *, ansi: bool) -> pa.Array:
    """Returns the results of sums of decimals: null where there was no value, or the sum did not fit.

    Raises OperatorError under `ansi` for one that did not fit.
    """
    none = empty_of(empty)
    if ansi and (~none & ~np.asarray(sums.is_valid())).any():
        raise OperatorError(_beyond("A sum", sums.type))
    return pc.if_else(pa.array(none), pa.scalar(None, sums.type), sums)


def _beyond(what: str, kind: pa.DataType) -> str:
    return f"{what} is beyond {kind}: Spark calls it an arithmetic overflow, and so does this query."


def empty_of(before: pa.Array) -> NDArray[np.bool_]:
    """Returns which groups are empty by Spark's buffer of that name, which a new group does not have yet."""
    return np.asarray(before.fill_null(True))


def extreme(before: pa.Array, values: pa.Array | None, groups: Groups, kind: pa.DataType, *, highest: bool) -> pa.Array:
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


def unscaled(values: pa.Array) -> pa.Array:
    """Returns decimals of at most 18 digits as the integers that they are without their point: 1.50 is 150."""
    low = np.frombuffer(values.buffers()[1], np.int64)[2 * values.offset : 2 * (values.offset + len(values)) : 2]
    return pa.array(low, mask=~np.asarray(values.is_valid()))


def scaled(sums: pa.Array, kind: pa.DataType, *, ansi: bool) -> pa.Array:
    """Returns the decimals of integers as `unscaled` gives them, null where one does not fit.

    Raises OperatorError under `ansi` for one that does not fit.
    """
    values, bound = sums.to_pylist(), 10**kind.precision
    if ansi and any(value is not None and abs(value) >= bound for value in values):
        raise OperatorError(_beyond("A sum", kind))
    fitting = [None if value is None or abs(value) >= bound else value for value in values]
    return pa.array([None if value is None else Decimal(value).scaleb(-kind.scale) for value in fitting], kind)


def rounded(means: pa.Array, scale: int, kind: pa.DataType) -> pa.Array:
    """Returns means of integers as `unscaled` gives them as decimals: of the double's shortest text, half up."""
    step = Decimal(1).scaleb(-kind.scale)
    found = [None if mean is None else Decimal(repr(mean / 10.0**scale)) for mean in means.to_pylist()]
    return pa.array([None if mean is None else mean.quantize(step, ROUND_HALF_UP) for mean in found], kind)


def quotient(sums: pa.Array, counts: pa.Array) -> pa.Array:
    """Returns averages of doubles, null where nothing was counted."""
    numbers = numbers_of(counts)
    divided = sums.fill_null(0.0).to_numpy()
    with np.errstate(invalid="ignore", divide="ignore"):
        return pa.array(divided / np.maximum(numbers, 1), mask=numbers == 0)


def decimal_quotient(sums: pa.Array, counts: pa.Array, kind: pa.DataType, *, ansi: bool) -> pa.Array:
    """Returns averages of decimals, rounded half up, null where nothing was counted, and where one does not fit.

    Raises OperatorError under `ansi` for one that does not fit.
    """
    step, bound = Decimal(1).scaleb(-kind.scale), Decimal(1).scaleb(kind.precision - kind.scale)
    averages: list[Decimal | None] = []
    for value, number in zip(sums.to_pylist(), numbers_of(counts).tolist(), strict=True):
        found = None if not number or value is None else _EXACT.quantize(_EXACT.divide(value, Decimal(number)), step)
        fits = found is not None and abs(found) < bound
        if ansi and number and not fits:
            raise OperatorError(_beyond("An average", kind))
        averages.append(found if fits else None)
    return pa.array(averages, kind)


def numbers_of(column: pa.Array) -> NDArray[np.int64]:
    """Returns a column of integers, 0 for null."""
    numbers: NDArray[np.int64] = column.fill_null(0).to_numpy().astype(np.int64)
    return numbers
