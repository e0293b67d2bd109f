"""Which records an operator has failed on: a note that travels with the exception of the user's own code."""

import traceback
from typing import NamedTuple

import lmdb
import pyarrow as pa

from impls.errors import StateError
from impls.store.records import FILE, ROW

Place = tuple[int, int, int, int]
"""Input partition and offset of a record, its row among those of the record, and its file; 0 where there is none."""


class Blame(NamedTuple):
    """The records that calls have failed on.

    Attributes:
        what: the function, as in "update".
        key: the first record's key.
        places: of the records, in order; more than one where the others were tried as well.
    """

    what: str
    key: object
    places: tuple[Place, ...]


_NAME = "rescale_blame"  # of the attribute of an exception


class Failures:
    """The records of a table that a function raises for.

    Args:
        records: the table.
        what: the function, as in "update".
        careful: the others are tried as well, so that many are found at once.
    """

    def __init__(self, records: pa.Table, what: str, *, careful: bool):
        self._records, self._what, self._careful = records, what, careful
        self._rows: list[int] = []
        self._first: Exception | None = None

    def add(self, row: int, error: Exception) -> None:
        """Takes in that a row has failed; raises the error if no others are to be tried, or what the store raised."""
        raise_store_error(error)
        self._rows.append(row)
        self._first = self._first or error
        if not self._careful:
            self.check()

    def check(self) -> None:
        """Raises the first error, if there was one, with a note of all records that have failed."""
        if self._first is None:
            return
        few = self._records.take(self._rows)
        names, none = ("partition", "offset", ROW, FILE), [0] * len(few)
        columns = [few.column(name).to_pylist() if name in few.column_names else none for name in names]
        places = zip(*columns, strict=True)
        found = Blame(self._what, few.column("key")[0].as_py(), tuple(places))
        vars(self._first)[_NAME] = found  # in place of an earlier one: some raise one object again and again
        raise self._first


def blamed(error: Exception) -> Blame | None:
    """Returns what `Failures` has noted, None where the exception is of no records."""
    found = vars(error).get(_NAME)
    return found if isinstance(found, Blame) else None


class Together:
    """`with` it each of some blocks is tried, also when one before has failed; check() then raises for all of them.

    Args:
        careful: otherwise the first exception is raised at once, as always one that notes no records.
    """

    def __init__(self, *, careful: bool):
        self._careful = careful
        self._failed: list[tuple[Exception, Blame]] = []

    def __enter__(self) -> None:
        """Begins a block."""

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> bool:
        """Ends a block, and returns whether its exception waits for check()."""
        if not self._careful or not isinstance(error, Exception) or (blame := blamed(error)) is None:
            return False
        self._failed.append((error, blame))
        return True

    def check(self) -> None:
        """Raises the first exception, if there was one, with a note of the records of all."""
        if not self._failed:
            return
        error, first = self._failed[0]
        places = dict.fromkeys(place for _, blame in self._failed for place in blame.places)
        vars(error)[_NAME] = first._replace(places=tuple(places))
        raise error


def raise_store_error(error: Exception) -> None:
    """Raises what the state's store has raised if that is behind an error: damage, a full map, no record's fault.

    A user's code that fails on it may raise another exception in its place, and may use LMDB for data of its own.
    """
    found: list[BaseException] = [error]
    for behind in found:  # which grows; each once, as one can be its own cause
        if isinstance(behind, StateError) or (isinstance(behind, lmdb.Error) and _raised_here(behind)):
            raise behind
        more = behind.exceptions if isinstance(behind, BaseExceptionGroup) else ()
        for one in (behind.__cause__, behind.__context__, *more):
            if one is not None and all(one is not other for other in found):
                found.append(one)


def _raised_here(error: lmdb.Error) -> bool:
    """Whether code of this package has called LMDB."""
    caller = ""
    for frame, _ in traceback.walk_tb(error.__traceback__):  # the last one is LMDB's caller
        caller = frame.f_globals.get("__name__", "")  # code that a user executes as text may have no name
    return caller.startswith(f"{__package__.partition('.')[0]}.")
