"""`query.state()`: a cut, the state of all keys at the end of one epoch, of a query that goes on meanwhile."""

import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from impls.closing import Closing, ended_on_error
from impls.driver.control import lent_if_running
from impls.driver.keeper import Keeper
from impls.durability.pins import Pin
from impls.errors import StateError, UsageError
from impls.protocol.ended import EndedEpoch
from impls.reading.state import StateAt
from impls.reading.stored import StoredQuery, restored
from impls.reading.texts import TEXTS, text_batches


class Cut(Closing):
    """The state of all keys at the end of one epoch, the same one at every worker.

    It is read from the checkpoint, whose files for this epoch stay until the cut is closed: 16 cuts may be open. No
    worker does anything for it.

    Args:
        stored: the query's checkpoint, read by a pin that keeps the files.
        ended: the pin's epoch.
        release: lets go of the pin; it is called once, also when nobody has the cut any more.
    """

    def __init__(self, stored: StoredQuery, ended: EndedEpoch, release: Callable[[], None]):
        self._stored, self._ended = stored, ended
        self._release = weakref.finalize(self, release)

    @classmethod
    def of(cls, keeper: Keeper, folder: Path) -> "Cut":
        """Returns a cut of the last epoch of a query whose files a keeper keeps.

        Args:
            keeper: the query's.
            folder: the checkpoint folder.

        Raises:
            UsageError: no epoch has ended, or 16 cuts are open.
        """
        pin, release = keeper.pin()
        with ended_on_error(release):
            return cls(StoredQuery(folder, keeper.files.uri, pin), pin.ended, release)

    @property
    def epoch(self) -> int:
        """The epoch at whose end it is."""
        return self._ended.epoch

    @property
    def queued(self) -> int:
        """Number of records that waited then, as their bins were on their way: the cut does not have them."""
        return self._ended.queued

    def close(self) -> None:
        """Lets the query delete the files again."""
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
        with _state(self._stored, scratch) as state:
            return state.to_pandas()

    def to_spark(
        self, session: SparkSession, *, partitions: int | None = None, scratch: str | None = None
    ) -> DataFrame:
        """Returns all rows as a DataFrame that Spark's tasks read, bins by bins; key, field and value are JSON.

        Spark reads them whenever the frame is used: keep the cut open, and in a variable, until then. The state is
        never in the driver. In the query's application its tasks and those of the frame take turns in micro-batches,
        and in real time the frame needs a core that is free: `impls.cut_of` makes the cut for another application.

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
        number = min(partitions or session.sparkContext.defaultParallelism, self._stored.bins)
        read = _Pieces(self._stored, number, scratch)
        return session.range(0, number, 1, number).mapInArrow(read, from_arrow_schema(TEXTS))

    def _check_open(self) -> None:
        if not self._release.alive:
            raise UsageError(f"The cut of epoch {self.epoch} is closed.")


def cut_of(checkpoint: str | Path, *, log_dir: str | None = None) -> Cut:
    """Returns a cut of a query that runs in another process of this host, as its handle's `state` does.

    The query closes it when this process ends, too.

    Args:
        checkpoint: the checkpoint folder; of a chain that of a stage.
        log_dir: folder or URI of changelog and snapshots, if the query has one.

    Raises:
        UsageError: no query runs on the checkpoint, or it refuses, as its `state` does; or the log_dir is not its own.
    """
    folder = Path(checkpoint).absolute()
    with ExitStack() as held:
        lent = held.enter_context(lent_if_running(folder, {"do": "cut"}))
        if lent is None:
            raise UsageError(f"No running query answers on the checkpoint {checkpoint}: impls.read_state reads it.")
        stored = StoredQuery(folder, log_dir, Pin.of_json(lent))
        return Cut(stored, stored.ended(None), held.pop_all().close)


@dataclass(frozen=True)
class _Pieces:
    """Reads pieces of a cut in a task of Spark: the numbers of batches' rows are those of pieces, from 0 on."""

    stored: StoredQuery
    pieces: int
    scratch: str | None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                bins = self.stored.ended(None).piece(number, self.pieces)
                with _state(self.stored, self.scratch, bins) as state:
                    yield from text_batches(row for bin_ in bins for row in state.rows(bin_))


@contextmanager
def _state(stored: StoredQuery, scratch: str | None, bins: list[int] | None = None) -> Iterator[StateAt]:
    """Opens the state of bins, all by default, at the end of the pin's epoch."""
    ended = stored.ended(None)
    try:
        with restored(stored, ended, scratch, bins) as txn:
            yield StateAt(stored, ended, txn)
    except StateError as error:
        raise StateError(
            f"The cut of epoch {ended.epoch} cannot be read; its files stay while it is open, and a start of the query "
            f"ends the cuts made before it. {error}"
        ) from error
