"""`query.state()`: a cut, the state of all keys at the end of one epoch, of a query that goes on meanwhile."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from impls.closing import Closing
from impls.driver.control import lent_if_running
from impls.durability.pins import Pin
from impls.errors import StateError, UsageError
from impls.reading.state import StateAt
from impls.reading.stored import StoredQuery, restored
from impls.reading.texts import text_batches

_COLUMNS = "bin int, key string, kind string, name string, field string, value string"


class Cut(Closing):
    """The state of all keys at the end of one epoch, the same one at every worker.

    It is read from the checkpoint, whose files for this epoch stay until the cut is closed: 16 cuts may be open. No
    worker does anything for it.

    Args:
        folder: the checkpoint folder.
        uri: folder or URI of changelog and snapshots.
        pin: keeps the files.
        release: lets go of the pin.
    """

    def __init__(self, folder: Path, uri: str, pin: Pin, release: Callable[[], None]):
        self._folder, self._uri, self._pin, self._release = folder.absolute(), uri, pin, release
        self._closed = False

    @property
    def epoch(self) -> int:
        """The epoch at whose end it is."""
        return self._pin.ended.epoch

    @property
    def queued(self) -> int:
        """Number of records that waited then, as their bins were on their way: the cut does not have them."""
        return self._pin.ended.queued

    def close(self) -> None:
        """Lets the query delete the files again."""
        self._closed = True
        self._release()

    def to_pandas(self, *, scratch: str | None = None) -> pd.DataFrame:
        """Returns all rows as `impls.read_state` does, with keys and values as Python has them.

        Args:
            scratch: a folder with room for the state; by default that of temporary files.

        Raises:
            UsageError: the cut is closed.
            StateError: a file is missing or damaged, such as when the query was started again meanwhile.
        """
        self._check_open()
        with _state(StoredQuery(self._folder, self._uri, self._pin), scratch) as state:
            return state.to_pandas()

    def to_spark(
        self, session: SparkSession, *, partitions: int | None = None, scratch: str | None = None
    ) -> DataFrame:
        """Returns all rows as a DataFrame that Spark's tasks read, bins by bins; key, field and value are JSON.

        Spark reads them whenever the frame is used, until when the cut is to stay open. The state is never in the
        driver. In the application of the query, its tasks and those of the frame take turns in micro-batches, and in
        real time the frame needs a core that is free: `impls.cut_of` makes the cut for another application.

        Args:
            session: where the frame is made.
            partitions: into how many partitions; by default as many as Spark runs at once, at most one a bin.
            scratch: a folder on each host with room for the bins of its tasks; by default that of temporary files.

        Raises:
            UsageError: the cut is closed, or `partitions` is below 1.
        """
        self._check_open()
        if partitions is not None and partitions < 1:
            raise UsageError(f"A DataFrame needs at least 1 partition, not {partitions}.")
        number = min(partitions or session.sparkContext.defaultParallelism, len(self._pin.ended.location))
        read = _Pieces(str(self._folder), self._uri, json.dumps(self._pin.to_json()), number, scratch)
        return session.range(0, number, 1, number).mapInArrow(read, _COLUMNS)

    def _check_open(self) -> None:
        if self._closed:
            raise UsageError(f"The cut of epoch {self.epoch} is closed.")


def cut_of(checkpoint: str | Path, *, log_dir: str | None = None) -> Cut:
    """Returns a cut of a query that runs in another process of this host, as its handle's `state` does.

    It is closed when its process ends, too.

    Args:
        checkpoint: the checkpoint folder; of a chain that of a stage.
        log_dir: folder or URI of changelog and snapshots, if the query has one.

    Raises:
        UsageError: no query runs on the checkpoint, or it refuses, as its `state` does.
    """
    folder = Path(checkpoint).absolute()
    with ExitStack() as held:
        lent = held.enter_context(lent_if_running(folder, {"do": "cut"}))
        if lent is None:
            raise UsageError(f"No running query answers on the checkpoint {checkpoint}: impls.read_state reads it.")
        return Cut(folder, log_dir or str(folder / "rescale"), Pin.of_json(lent), held.pop_all().close)


@dataclass(frozen=True)
class _Pieces:
    """Reads pieces of a cut in a task of Spark: the numbers of batches' rows are those of pieces, from 0 on."""

    folder: str
    uri: str = field(repr=False)  # it may have a key
    pin: str = field(repr=False)
    pieces: int
    scratch: str | None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        pin = Pin.of_json(json.loads(self.pin))
        by_owner = np.argsort(pin.ended.location, kind="stable")  # a piece reads the changelog of few workers
        stored = StoredQuery(Path(self.folder), self.uri, pin)
        for batch in batches:
            for number in batch.column(0).to_pylist():
                bins = np.array_split(by_owner, self.pieces)[number].tolist()
                with _state(stored, self.scratch, bins) as state:
                    yield from text_batches(row for bin_ in bins for row in state.rows(bin_))


@contextmanager
def _state(stored: StoredQuery, scratch: str | None, bins: list[int] | None = None) -> Iterator[StateAt]:
    """Opens the state of bins, all by default, at the end of the pin's epoch."""
    ended = stored.ended(None)
    try:
        with restored(stored, ended, scratch, bins) as txn:
            yield StateAt(stored, ended, txn)
    except StateError as error:
        what = f"The cut of epoch {ended.epoch} cannot be read; a start of the query ends the cuts made before it"
        raise StateError(f"{what}. {error}") from error
