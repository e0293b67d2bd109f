"""Records that cannot be applied: what is wrong with them, how they are named, and what becomes of them.

A value that Spark lets through, such as a null key, must not end a query with an exception of this runtime, and then
again at every start. By default the query ends with a sentence that names the record; with `on_error="skip"` such
records are set aside and counted.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NoReturn

import lmdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from impls.errors import FOR_KEY, OperatorError
from impls.operators.base import Operator
from impls.operators.blame import Blame, Place, blamed, raise_store_error
from impls.operators.timed import valid_times
from impls.protocol.report import Report
from impls.store.offsets import PARTITION_BITS
from impls.store.records import FILE, PRODUCER, ROW, has_column
from impls.worker.query import Task

ON_ERROR = ("fail", "skip")
_REMEDY = 'leave such records out before the query, or give it on_error="skip" to set them aside'
_PLACE = ("partition", "offset")
_MOST = 80  # characters of a key in a message
_Mask = NDArray[np.bool_]


class Again(Exception):  # noqa: N818 - a signal to whoever runs the task, not an error
    """The task is to be done again in another way."""


class SetAside(Again):
    """An operator has failed on records that are to be set aside.

    Attributes:
        places: of the records; none where it is not known which they are.
    """

    def __init__(self, places: Sequence[Place]):
        super().__init__(f"The records {list(places[:3])} are set aside.")
        self.places = tuple(places)


def to_set_aside(task: Task, found: Blame) -> list[Place]:
    """Returns which of the records that an operator has failed on are to be set aside, none if they are not to be."""
    return [] if task.spec.on_error != "skip" else sorted({*found.places} - {*task.set_aside})


def _place_text(task: Task, partition: int | None, offset: int | None) -> str:
    """Returns where a record is, with its topic if it is known."""
    if partition is None or offset is None:  # the user's own columns say so
        return f"partition {partition}, offset {offset}"
    topic = task.spec.topics.get(partition >> PARTITION_BITS)
    if topic is None:
        return f"input partition {partition}, offset {offset}"
    return f"topic {topic}, partition {partition & ((1 << PARTITION_BITS) - 1)}, offset {offset}"


def accepted(task: Task, table: pa.Table, report: Report) -> pa.Table:
    """Returns records without those that no operator can be given; they are counted in the report.

    Raises OperatorError that names the first of them, unless they are to be set aside.
    """
    while (wrong := _wrong(task.spec.operator, table)) is not None:
        mask, why = wrong
        if task.spec.on_error != "skip":
            row = int(np.flatnonzero(mask)[0])
            where = _place_text(task, *(table.column(name)[row].as_py() for name in _PLACE))
            raise OperatorError(f"The record at {where} {why(row)}: {_REMEDY}.")
        report.refused += int(mask.sum())
        table = table.filter(pa.array(~mask))
    return table


def acceptable(operator: Operator, table: pa.Table) -> pa.Table:
    """Returns records without those that no operator can be given."""
    while (wrong := _wrong(operator, table)) is not None:
        table = table.filter(pa.array(~wrong[0]))
    return table


def _wrong(operator: Operator, table: pa.Table) -> tuple[_Mask, Callable[[int], str]] | None:
    """Returns which records are wrong in one way, and what is wrong with one; None where none is."""
    if has_column(table, PRODUCER) and (sender := table.column(PRODUCER)).null_count:
        return _mask(sender.is_null()), lambda _: "has no number, and so is no result of a query of this version"
    for name in (*_PLACE, "key"):
        if (column := table.column(name)).null_count:
            return _mask(column.is_null()), lambda _, name=name: f"has no {name}"
    key = table.column("key")
    if operator.event_time is not None:
        name = operator.event_time.column
        times = table.column(name)
        if (mask := ~valid_times(times)).any():
            return mask, lambda row: _time_text(name, times[row].as_py())
    if (outside := operator.outside(table)) is None:
        return None
    return outside, lambda row: f"has the key {str(key[row].as_py())[:_MOST]}, which is none of the operator's"


def without_set_aside(task: Task, table: pa.Table, report: Report) -> pa.Table:
    """Returns records without those on which the operator has failed; they are counted in the report."""
    if not task.set_aside or not len(table):
        return table
    names = [name for name in ("partition", "offset", ROW, FILE) if has_column(table, name)]
    places = zip(*(table.column(name).to_pylist() for name in names), strict=True)
    known = {place[: len(names)] for place in task.set_aside}
    kept = [place not in known for place in places]
    report.refused += len(kept) - sum(kept)
    return table.filter(pa.array(kept))


@contextmanager
def named(task: Task) -> Iterator[None]:
    """Adds to an operator's exception which record it is about; raises SetAside where that one is to be set aside."""
    try:
        yield
    except Again:
        raise
    except Exception as error:
        raise_store_error(error)
        if (found := blamed(error)) is None:
            if task.spec.on_error == "skip" and not task.careful:
                raise SetAside(()) from error  # again, with care: then what a record leaves behind is tried with it
        elif places := to_set_aside(task, found):
            raise SetAside(places) from error
        _raise_last(task, error, found)


def _raise_last(task: Task, error: Exception, found: Blame | None) -> NoReturn:
    """Raises what is to end the query, with a note of which record it is about, if that is known.

    An LMDB of the operator's own is not the state: nothing must take its error for damage.
    """
    if isinstance(error, lmdb.Error):
        shown = OperatorError(f"{type(error).__name__}: {error}")
        shown.__cause__ = error
        error = shown
    if found is not None:  # a function may raise one object again and again
        error.__notes__ = [note for note in getattr(error, "__notes__", ()) if _REMEDY not in note]
        error.add_note(blame_text(task, found))
    raise error


def blame_text(task: Task, found: Blame) -> str:
    """Returns the sentence on a record that a call has failed on, and what to do about it."""
    return f"{found.what}{FOR_KEY}{found.key!r} of the record at {_place_text(task, *found.places[0][:2])}: {_REMEDY}."


def _mask(column: pa.ChunkedArray) -> _Mask:
    mask: _Mask = column.to_numpy(zero_copy_only=False).astype(bool)
    return mask


def _time_text(name: str, time: int | None) -> str:
    if time is None:
        return f"has no event time in the column {name!r}"
    return f"has the event time {time} in the column {name!r}, which is not between -2^62 and 2^62"
