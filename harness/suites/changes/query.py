"""The query that changes: the program `harness.suites.changes.query` runs what FOLDER/run.json says.

It runs until the control channel of its checkpoint stops it or its standard input ends. When it was stopped and
FOLDER/pipeline.json names other code than it ran, it is started again with that code, on the same checkpoint and in the
same session: that is a change by stop and restart.

A result of its pipeline is `harness.oracle.changes.columns.HEADER` and an `ENTRY` for each record: partition, offset,
and the label that the map step of its version wrote into it. So the oracle sees by which code each record was computed.
"""

import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from struct import pack
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from harness.experiment.description import Run
from harness.files import read_json, write_json
from harness.lab.child import program
from harness.oracle.changes.columns import ENTRY, HEADER, VersionEffect
from harness.run.pipeline import read_records, start_query
from harness.run.recorder import Recorder
from harness.suites.faults.query import await_query, end, run_query
from impls.driver.codes import Offer, Offers
from impls.driver.handle import StreamHandle
from impls.operators import Filter, HashCount, Map, Operator, RecordOperator
from impls.operators.pipeline import pipeline_of
from impls.operators.steps import Step
from impls.spark.shipping import pickled_offer
from impls.store.records import Results
from impls.store.state import BinState

COLUMNS = ("label", "number")  # of the input: 0, and the offset, which a step may read
_MAP, _FILTER = "label", "sieve"


@dataclass(frozen=True)
class Tally(RecordOperator):
    """Counts records per key in 8 bytes, and lists them; keys 0..preload-1 start with 0."""

    preload: int
    columns: tuple[str, ...] = ("label",)
    shape: ClassVar[int] = 1
    key_type: ClassVar[Any] = "long"

    def create(self, bin_: int, bins: int, state: BinState) -> None:
        """Creates the entries of the bin's preloaded keys."""
        HashCount(self.preload).create(bin_, bins, state)

    def dump(self, value: Any) -> bytes:
        """Encodes a count."""
        return int(value).to_bytes(8, "little")

    def load(self, raw: bytes) -> Any:
        """Decodes a count; raises ValueError for a state of another shape."""
        if len(raw) != 8:
            raise ValueError(f"a count of {len(raw)} bytes")
        return int.from_bytes(raw, "little")

    def after(self, value: Any, records: int) -> Any:
        """Returns the state of a key that had one, or None, and gets so many records."""
        return (value or 0) + records

    def counts_of(self, value: Any) -> tuple[int, int]:
        """Returns a key's records so far, and those since its state has this shape."""
        return value, 0

    def apply(self, records: pa.Table, state: BinState) -> Results:
        """Counts the records; see `RecordOperator`."""
        keys, edges, order = _by_key(records.column("key").to_numpy())
        bins = records.column("bin").to_numpy()[order[edges[:-1]]]
        listed, size = _entries(records, order), ENTRY.itemsize
        names = [key.to_bytes(8, "big", signed=True) for key in keys.tolist()]
        old = state.get_many(bins.tolist(), names)
        numbers = np.diff(edges).tolist()
        values = [self.after(None if raw is None else self.load(raw), n) for raw, n in zip(old, numbers, strict=True)]
        state.put_many(bins.tolist(), names, [self.dump(value) for value in values], old)
        at = (edges * size).tolist()
        payloads = [
            pack(HEADER, self.shape, *self.counts_of(value)) + listed[begin:end]
            for value, begin, end in zip(values, at, at[1:], strict=False)
        ]
        return Results(bins, names, payloads)


class TallySince(Tally):
    """The same with a state of two fields: all records, and those since the state has this shape."""

    shape: ClassVar[int] = 2

    def dump(self, value: Any) -> bytes:
        """Encodes two counts."""
        return b"".join(int(number).to_bytes(8, "little") for number in value)

    def load(self, raw: bytes) -> Any:
        """Decodes two counts; raises ValueError for a state of another shape."""
        if len(raw) != 16:
            raise ValueError(f"two counts of {len(raw)} bytes")
        return int.from_bytes(raw[:8], "little"), int.from_bytes(raw[8:], "little")

    def after(self, value: Any, records: int) -> Any:
        """Returns both counts after so many records."""
        total, since = value or (0, 0)
        return total + records, since + records

    def counts_of(self, value: Any) -> tuple[int, int]:
        """Returns both counts."""
        return int(value[0]), int(value[1])


def _by_key(keys: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.intp]]:
    """Returns distinct keys, where each begins among the sorted rows (and their number), and those rows in order."""
    order = np.argsort(keys, kind="stable")
    distinct, first = np.unique(keys[order], return_index=True)
    return distinct, np.append(first, len(keys)), order


def _entries(records: pa.Table, order: NDArray[np.intp]) -> bytes:
    listed = np.empty(len(order), ENTRY)
    for name in ENTRY.names or ():
        listed[name] = records.column(name).to_numpy()[order]
    return listed.tobytes()


def _label_1(_row: dict[str, Any]) -> dict[str, Any]:
    return {"label": 1}


def _label_2(_row: dict[str, Any]) -> dict[str, Any]:
    return {"label": 2}


def _even(row: dict[str, Any]) -> bool:
    return bool(row["number"] % 2 == 0)


def _since(total: int) -> tuple[int, int]:
    return total, 0


def _total(both: tuple[int, int]) -> int:
    return both[0]


def _map_of(code: VersionEffect) -> Step:
    return Map(_MAP, _label_1 if code.label == 1 else _label_2, ("label",))


def _operator_of(code: VersionEffect, keys: int) -> Operator:
    return Tally(keys) if code.shape == 1 else TallySince(keys)


def version_0(code: VersionEffect, keys: int) -> Operator:
    """Returns the pipeline of a query that starts with a version's code, its state created for all keys."""
    sieve = [Filter(_FILTER, _even, ("number",))] if code.sieve else []
    return pipeline_of([*sieve, _map_of(code)], _operator_of(code, keys))


def request_for(offers: Offers, old: VersionEffect, new: VersionEffect, keys: int, **how: Any) -> dict[str, Any]:
    """Returns the request of the control channel that makes one version of another; they differ in one respect.

    Args:
        offers: those of the query, which get the code.
        old: what there is.
        new: what is to be.
        keys: number of preloaded keys.
        how: of a change of the shape: `lazy` and `budget_bytes` of `StreamHandle.replace`.
    """
    if new.sieve and not old.sieve:
        step = Filter(_FILTER, _even, ("number",))
        return {"do": "insert", "before": _MAP, "offered": offers.put(pickled_offer(Offer(step)))}
    if old.sieve and not new.sieve:
        return {"do": "remove", "name": _FILTER}
    if old.label != new.label:
        return {"do": "replace", "offered": offers.put(pickled_offer(Offer(_map_of(new))))}
    ways: tuple[Callable[[Any], Any], Callable[[Any], Any]] = (_since, _total)
    by = Offer(_operator_of(new, keys), *(ways if new.shape == 2 else ways[::-1]))
    return {"do": "replace", "offered": offers.put(pickled_offer(by)), **how}


_PIPELINE = "pipeline.json"


def write_pipeline(folder: Path, code: VersionEffect) -> None:
    """Names the code that a query runs at its next start."""
    write_json(folder / _PIPELINE, asdict(code))


def _read_pipeline(folder: Path) -> VersionEffect:
    return VersionEffect(**read_json(folder / _PIPELINE))


def _start(spark: SparkSession, run: Run, folder: Path, code: VersionEffect, recorder: Recorder) -> StreamHandle:
    """Starts the query with a version's code, or continues it."""
    experiment, bootstrap = run.experiment, str(run.experiment.bootstrap)
    frame = read_records(spark, bootstrap, "in").withColumns({"label": F.lit(0).cast("int"), "number": F.col("offset")})
    source = (frame, version_0(code, experiment.keys), COLUMNS)
    return start_query(
        spark, run, folder, bootstrap, ("in", "out"), on_epoch=recorder.on_epoch, on_event=recorder.event, source=source
    )


def _serve(spark: SparkSession, run: Run, folder: Path, recorder: Recorder, orphaned: threading.Event) -> None:
    """Runs the query until it is stopped for good."""
    code: VersionEffect | None = None
    while code != _read_pipeline(folder) and not orphaned.is_set():
        code = _read_pipeline(folder)
        query = _start(spark, run, folder, code, recorder)
        await_query(query, orphaned)


if __name__ == "__main__":
    end(program(partial(run_query, serve=_serve)))
