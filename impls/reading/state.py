"""`read_state`: the state of all keys at the end of one epoch, from a checkpoint, with or without its query running."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path

import lmdb
import pandas as pd

from impls.aggregation import GROUPING_KEY
from impls.driver.control import lent_if_running
from impls.driver.keystate import StateRow
from impls.durability.pins import Pin
from impls.errors import StateError
from impls.operators import DenseCount
from impls.protocol.ended import EndedEpoch
from impls.reading.forms import ONLY_FIRST, Entries, Reader, reader_of
from impls.reading.stored import StoredQuery, restored
from impls.reading.variables import Variables
from impls.store.entries import SLOTS, block_numbers, open_blocks, open_entries
from impls.store.packs import entries_of
from impls.store.state import BinState
from impls.store.tables import DENSE, bin_range, chunks

_ATTEMPTS = 5


class StateAt:
    """The state of a query at the end of an epoch; see `state_at`.

    Attributes:
        query: identity of the query.
        epoch: the epoch.
        queued: number of records that waited then, as their bins were on their way: they have not been applied.
        bins: the number of bins.
    """

    def __init__(self, stored: StoredQuery, ended: EndedEpoch, txn: lmdb.Transaction):
        self.query, self.epoch, self.queued, self.bins = stored.query, ended.epoch, ended.queued, stored.bins
        self._form, self._txn = stored.form, txn
        self._read = _reader(stored, ended)
        form = self._form["values"]
        self._turned = reader_of({**self._form, "values": "bytes"}) if form in ONLY_FIRST else self._read

    def rows(self, bin_: int) -> Iterator[StateRow]:
        """Yields what a bin holds, in the order of the store; raises StateError where it is damaged."""
        if self._form["values"] == "dense":
            yield from _counts(self._txn, bin_, self.bins, self._form["keys"])
        else:
            yield from (self._turned if self.shape(bin_) else self._read)(bin_, self.entries(bin_))

    def shape(self, bin_: int) -> int:
        """Returns the version of the pipeline by which a bin's values are what they are, 0 for that of the begin."""
        return BinState(self._txn, self.bins).shape(bin_)

    def entries(self, bin_: int) -> Entries:
        """Returns the keys and values of what a bin holds; raises StateError where it is damaged."""
        return open_entries([(bytes(name), bytes(value)) for name, value in entries_of(self._txn, bin_)])

    def every_row(self) -> Iterator[StateRow]:
        """Yields what all bins hold, bin by bin."""
        for bin_ in range(self.bins):
            yield from self.rows(bin_)

    def to_pandas(self) -> pd.DataFrame:
        """Returns what all bins hold, see `read_state`."""
        frames = [_frame([])]
        frames += (_frame(rows) for rows in in_batches(self.every_row()))  # few tuples for the collector to go over
        frame = pd.concat(frames, ignore_index=True).astype({"bin": "int32"})
        frame.attrs = {"query": self.query, "epoch": self.epoch, "queued": self.queued}
        return frame


def _frame(rows: list[StateRow]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=StateRow._fields, dtype=object)


def in_batches(every: Iterator[StateRow]) -> Iterator[list[StateRow]]:
    """Yields rows in lists of 20,000."""
    while rows := list(islice(every, 20_000)):
        yield rows


def _reader(stored: StoredQuery, ended: EndedEpoch) -> Reader:
    form = stored.form
    variables = Variables(stored.folder, lambda: ended.now) if form["values"] == "processor" else None
    return reader_of(form, columns=stored.settings["key"] == GROUPING_KEY, variables=variables)


def _counts(txn: lmdb.Transaction, bin_: int, bins: int, keys: int) -> Iterator[StateRow]:
    """Yields the counts of a dense bin, whose keys are a range of 0..keys-1."""
    each = DenseCount(keys).per_bin(bins)
    first, last = bin_ * each, min((bin_ + 1) * each, keys)
    for blocks in chunks(txn, *bin_range(DENSE, bin_)):
        names, values = [bytes(name) for name, _ in blocks], [value for _, value in blocks]
        words = open_blocks(b"".join(values), block_numbers(names), f"bin {bin_}")[:, :SLOTS]
        counts = words.ravel()[: max(last - first, 0)].tolist()
        for key, count in enumerate(counts, first):
            yield StateRow(bin_, key, "value", "", None, count)
        first += len(counts)


@contextmanager
def state_at(
    checkpoint: str | Path, epoch: int | None = None, *, log_dir: str | None = None, scratch: str | None = None
) -> Iterator[StateAt]:
    """Opens the state of all keys at the end of an epoch; see `read_state`.

    A query that runs on this host keeps the files meanwhile. Of one on another host a file may be deleted that is still
    to be read: then its next state is tried.
    """
    left = _ATTEMPTS
    with ExitStack() as held:
        lent = held.enter_context(lent_if_running(checkpoint, {"do": "cut"}))
        pin = None if lent is None else Pin.of_json(lent)
        stored = StoredQuery(Path(checkpoint), log_dir, pin)
        while True:
            try:
                ended = stored.ended(epoch)
                txn = held.enter_context(restored(stored, ended, scratch))
                break
            except StateError:
                before, stored, left = stored, StoredQuery(Path(checkpoint), log_dir), left - 1
                if not left or stored.mark() == before.mark():
                    raise
        yield StateAt(stored, ended, txn)


def read_state(
    checkpoint: str | Path, epoch: int | None = None, *, log_dir: str | None = None, scratch: str | None = None
) -> pd.DataFrame:
    """Returns the state of all keys at the end of an epoch, with the columns of `impls.driver.keystate.StateRow`.

    It comes from snapshots and changelog: workers' environments are not looked at, nothing is written beside a folder
    that goes again, and a query that runs is not disturbed. What has a time to live is left out when it has expired.
    `attrs` of the frame have the query, the epoch, and the number of records that were queued then: those whose bins
    were on their way, which have not been applied yet.

    Args:
        checkpoint: the checkpoint folder; of a chain that of a stage.
        epoch: the epoch, by default the last one that has ended.
        log_dir: folder or URI of changelog and snapshots, if the query has one.
        scratch: a folder with room for the state; by default that of temporary files.

    Raises:
        UsageError: there is no checkpoint, it keeps no changelog, or the epoch is not to be had.
        StateError: a file of the checkpoint is missing or damaged; the message names it.
    """
    with state_at(checkpoint, epoch, log_dir=log_dir, scratch=scratch) as state:
        return state.to_pandas()
