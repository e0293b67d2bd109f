"""Which record an operator has failed on: a note that travels with the exception of the user's own code."""

from typing import NamedTuple

import pyarrow as pa

from impls.store.records import ROW


class Blame(NamedTuple):
    """The record that a call has failed on.

    Attributes:
        what: the function, as in "update".
        key: the record's key.
        place: input partition, offset, and its row among those of the record.
    """

    what: str
    key: object
    place: tuple[int, int, int]


_NAME = "rescale_blame"  # of the attribute of an exception


def blame(error: Exception, records: pa.Table, row: int, what: str) -> None:
    """Notes with an exception on which of the records it was raised."""
    place = tuple(int(records.column(name)[row].as_py()) for name in ("partition", "offset"))
    number = int(records.column(ROW)[row].as_py()) if ROW in records.column_names else 0
    vars(error).setdefault(_NAME, Blame(what, records.column("key")[row].as_py(), (place[0], place[1], number)))


def blamed(error: Exception) -> Blame | None:
    """Returns what `blame` has noted, None where the exception is of no one record."""
    found = vars(error).get(_NAME)
    return found if isinstance(found, Blame) else None
