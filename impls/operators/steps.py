"""Stateless steps in front of a keyed operator and behind it; a running query's can be replaced one by one."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from impls.errors import UsageError
from impls.operators.blame import Failures
from impls.store.records import Results

_FIXED = ("bin", "partition", "offset", "time", "key")


@dataclass(frozen=True)
class Step:
    """A step of a pipeline; deterministic, and without memory, as operators are.

    Attributes:
        name: by which it is replaced or taken out.
        function: the user's.
        columns: columns of the input that it reads besides the key.
    """

    name: str
    function: Callable[..., Any]
    columns: tuple[str, ...] = ()

    def records(self, table: pa.Table, *, careful: bool = False) -> pa.Table:
        """Takes records on their way to the operator: columns bin, partition, offset, time, key and the pipeline's.

        With `careful` all records are to be found that the function raises for, whatever that takes.
        """
        return table

    def results(self, results: Results) -> Results:
        """Takes results on their way from the operator."""
        return results

    def _each(self, table: pa.Table) -> list[Any]:
        """Returns what the function returns for each record; an exception notes the records that it is about."""
        found, failures = [], Failures(table, f"the step {self.name}", careful=True)
        for place, row in enumerate(table.select(["key", *self.columns]).to_pylist()):
            try:
                found.append(self._checked(self.function(row)))
            except Exception as error:
                failures.add(place, error)
        failures.check()
        return found

    def _checked(self, value: Any) -> Any:
        """Returns what the function returned; raises TypeError for what it must not return."""
        return value


@dataclass(frozen=True)
class Filter(Step):
    """Keeps the records for which `function(row)` is true; `row` has `key` and the step's columns by name."""

    def records(self, table: pa.Table, *, careful: bool = False) -> pa.Table:
        """Leaves out the other records."""
        return table.filter(pa.array([bool(kept) for kept in self._each(table)], pa.bool_()))


@dataclass(frozen=True)
class Map(Step):
    """Changes columns of each record: `function(row)` returns those that it changes, by name."""

    def records(self, table: pa.Table, *, careful: bool = False) -> pa.Table:
        """Puts what the function returned in the place of the columns, whose types stay."""
        changed = self._each(table)
        for name in dict.fromkeys(name for row in changed for name in row):
            if name not in self.columns:
                raise UsageError(f"The step {self.name} changes the column {name!r}, which is none of its columns.")
            at = table.column_names.index(name)
            old = table.column(name).to_pylist()
            values = [row.get(name, before) for row, before in zip(changed, old, strict=True)]
            table = table.set_column(at, name, self._column(table, values, table.schema.field(name).type))
        return table

    def _checked(self, value: Any) -> Any:
        if not isinstance(value, Mapping):
            raise TypeError(f"returned a {type(value).__name__}, not the columns that it changes")
        return value

    def _column(self, table: pa.Table, values: list[Any], kind: pa.DataType) -> pa.Array:
        try:
            return pa.array(values, kind)
        except (pa.ArrowException, TypeError, OverflowError) as error:
            failures = Failures(table, f"the step {self.name}", careful=True)
            for place, value in enumerate(values):
                if not _fits(value, kind):
                    failures.add(place, error)
            failures.check()
            raise


def _fits(value: Any, kind: pa.DataType) -> bool:
    try:
        pa.scalar(value, kind)
    except (pa.ArrowException, TypeError, OverflowError):
        return False
    return True


@dataclass(frozen=True)
class Batch(Step):
    """Changes many records at once: `function(table)` returns a pyarrow table of the same records, or of fewer.

    It may change or add columns, but for bin, partition, offset, time and key.
    """

    def records(self, table: pa.Table, *, careful: bool = False) -> pa.Table:
        """Returns what the function does; raises UsageError when it has lost or changed a column that must stay.

        With `careful` an exception notes the records that the function raises for when they stand alone, if there are
        such.
        """
        try:
            done = self.function(table)
        except Exception as error:
            if careful:
                failures = Failures(table, f"the step {self.name}", careful=True)
                for row, alone in self._alone(table, range(len(table)), error):
                    failures.add(row, alone)
                failures.check()
            raise
        missing = set(table.column_names) - set(done.column_names)
        if missing:
            raise UsageError(f"The step {self.name} has lost the column {min(missing)!r}.")
        if len(done) == len(table) and not all(done.column(name).equals(table.column(name)) for name in _FIXED):
            raise UsageError(f"The step {self.name} has changed one of the columns {', '.join(_FIXED)}.")
        return done

    def _alone(self, table: pa.Table, rows: range, error: Exception) -> list[tuple[int, Exception]]:
        """Returns the rows, of some that the function has raised for together, for which it raises alone."""
        if len(rows) == 1:
            return [(rows.start, error)]
        half = len(rows) // 2
        return [*self._tried(table, rows[:half]), *self._tried(table, rows[half:])]

    def _tried(self, table: pa.Table, rows: range) -> list[tuple[int, Exception]]:
        try:
            self.function(table.slice(rows.start, len(rows)))
        except Exception as error:
            return self._alone(table, rows, error)
        return []


@dataclass(frozen=True)
class ResultMap(Step):
    """Changes results: `function(key, payload)`, both bytes, returns the payload to send, None to send nothing."""

    def results(self, results: Results) -> Results:
        """Returns the results that remain."""
        payloads = [self.function(key, value) for key, value in zip(results.keys, results.payloads, strict=True)]
        kept = [i for i, payload in enumerate(payloads) if payload is not None]
        return Results(
            results.bins[np.array(kept, np.int64)], [results.keys[i] for i in kept], [payloads[i] for i in kept]
        )
