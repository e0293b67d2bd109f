"""A query's checkpoint, read without opening it: nothing is written, and a query that runs goes on."""

import gc
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import lmdb
import numpy as np

from impls.driver.base import Journals, read_base
from impls.driver.checkpoint import check_single, form_of, settings_of
from impls.durability import frame as frames
from impls.durability.files import Files
from impls.durability.pins import Pin
from impls.durability.restore import RestoreRequest, restore
from impls.durability.schedule import NAME, read_manifest
from impls.durability.snapshot import map_of
from impls.durability.source import RestoreSource
from impls.errors import StateError, UsageError
from impls.operators import DenseCount, HashCount
from impls.operators.base import Effects, Operator
from impls.protocol.controller import Controller
from impls.protocol.ended import EndedEpoch
from impls.protocol.mechanism import Mechanism
from impls.store.environment import MAP_BYTES, Store
from impls.store.state import BinState


class StoredQuery:
    """What a checkpoint says of its query.

    Attributes:
        folder: the checkpoint folder.
        query: identity of the query.
        settings: with which it began.
        form: how its state is read, see `impls.reading.forms`.
        files: changelog and snapshots.

    Args:
        folder: the checkpoint folder.
        log_dir: folder or URI of changelog and snapshots, if the query has one.
        pin: keeps the files of its epoch, where the query runs.

    Raises:
        UsageError: there is no checkpoint, a file of it is damaged, or it keeps no changelog.
    """

    def __init__(self, folder: Path, log_dir: str | None = None, pin: Pin | None = None):
        self.folder, own = folder.absolute(), folder.absolute() / "rescale"
        check_single(self.folder)
        self.query, self.settings = settings_of(self.folder)
        self.form = form_of(self.folder)
        check_changelog(self.settings, folder)
        self.files, self._own, self._pin = Files(log_dir or str(own)), own, pin
        self._manifest = read_manifest(self.files, self.query, self.bins) if pin is None else pin.manifest

    @cached_property
    def _journals(self) -> Journals:
        """The journals, which go further than the manifest that was read before them."""
        return _journals(self._own, self.query)

    def mark(self) -> tuple[Any, ...]:
        """Returns what is another one where the query has gone on since."""
        base, plans, observed = self._journals.base, self._journals.plans, self._journals.observed
        return self._manifest.file_epoch.tobytes(), None if base is None else base.epoch, len(plans), len(observed)

    @property
    def bins(self) -> int:
        """The number of bins."""
        return int(self.settings["bins"])

    def source(self) -> RestoreSource:
        """Returns where bins are restored from; what they begin with comes from the form."""
        return RestoreSource(self.files, self.query, self.bins, _Beginning(self.form), self._manifest)

    def ended(self, epoch: int | None) -> EndedEpoch:
        """Returns an epoch, by default that of the pin, or the last one.

        Raises UsageError where it has not ended yet, its state is not kept any more, or the files are elsewhere.
        """
        if self._pin is not None and epoch in {None, self._pin.ended.epoch}:
            self._check_place()
            return self._pin.ended
        journals, newest = self._journals, int(self._manifest.file_epoch.max())
        base = -1 if journals.base is None else journals.base.epoch
        last = max([seen.epoch for seen in journals.observed if not seen.stopped], default=base)
        first = max(base, newest, 0)
        if last < 0:
            raise UsageError(f"No epoch of the query of {self.folder} has ended yet.")
        self._check_place()
        wanted = last if epoch is None else epoch
        if not first <= wanted <= last:
            raise UsageError(f"The checkpoint {self.folder} has the state at the ends of epochs {first} to {last}.")
        planless = cast(Mechanism, None)  # which only plans ask
        controller = Controller(np.zeros(self.bins, np.int32), planless)
        journals.replay(controller, wanted)
        return EndedEpoch.of(controller, next((plan for plan in journals.plans if plan.epoch == wanted), None))

    def _check_place(self) -> None:
        """Raises UsageError where changelog and snapshots are elsewhere."""
        there = self._manifest if self._pin is None else read_manifest(self.files, self.query, self.bins)
        if there.file_epoch.max() < 0 and not self.files.names(frames.FOLDER) and self.files.read(NAME) is None:
            raise UsageError(
                f"There are neither snapshots nor a changelog in {self.files.place}: name the log_dir of the query."
            )


def check_changelog(settings: Mapping[str, Any], folder: Path) -> None:
    """Raises UsageError for the settings of a query that keeps no changelog, from which its state could be read."""
    if not settings["changelog"]:
        where = "in the store that all workers share" if settings["state"] == "shared" else "in state_dir alone"
        raise UsageError(f"The query of {folder} keeps no changelog: its state is {where}.")


def _journals(own: Path, query: str) -> Journals:
    """Returns the journals behind a base that was there all the while: one that is written empties them."""
    while True:
        base = read_base(own, query)
        journals = Journals.read(own, base)
        if read_base(own, query) == base:
            return journals


@contextmanager
def restored(
    stored: StoredQuery, ended: EndedEpoch, scratch: str | None = None, bins: Iterable[int] | None = None
) -> Iterator[lmdb.Transaction]:
    """Yields a transaction with the state of bins at the end of an epoch, restored into a folder that goes again.

    Args:
        stored: the query.
        ended: the epoch.
        scratch: where the folder is made; by default where temporary files are.
        bins: the bins, all by default.

    Raises:
        StateError: a file is missing or damaged, which the message names, or the folder has no room.
    """
    gc.freeze()  # each collection would go over all that the process has: two thirds of the time of 1 M rows
    try:
        with _restored(stored, ended, scratch, bins) as txn:
            yield txn
    finally:
        gc.unfreeze()


@contextmanager
def _restored(
    stored: StoredQuery, ended: EndedEpoch, scratch: str | None, bins: Iterable[int] | None
) -> Iterator[lmdb.Transaction]:
    owners = {bin_: int(ended.location[bin_]) for bin_ in (range(stored.bins) if bins is None else bins)}
    room = max(MAP_BYTES, map_of(stored.files))
    with TemporaryDirectory(prefix="state-", dir=scratch) as folder:
        while True:
            with Store.open(Path(folder) / str(room), map_bytes=room) as store:
                txn = store.begin()
                try:
                    if _fits(stored.source(), ended.epoch, owners, txn, folder):
                        yield txn
                        return
                finally:
                    txn.abort()
            room *= 2  # what bins begin with is in no file


def _fits(source: RestoreSource, epoch: int, owners: Mapping[int, int], txn: lmdb.Transaction, folder: str) -> bool:
    """Restores bins of owners, and returns whether the map had room for them."""
    try:
        restore(source, txn, epoch, RestoreRequest(owners, past=True))
    except lmdb.MapFullError:
        return False
    except lmdb.Error as error:
        raise StateError(f"The state cannot be restored into {folder}: {error}; TMPDIR names another place.") from error
    return True


class _Beginning(Operator):
    """Creates bins as a form says; it runs nothing."""

    def __init__(self, form: dict[str, Any]):
        self._form = form

    def create(self, bin_: int, bins: int, state: BinState) -> None:
        """Creates a bin; raises StateError where only the operator knows with what it begins."""
        match self._form["begins"]:
            case "dense":
                DenseCount(self._form["keys"]).create(bin_, bins, state)
            case "preload":
                HashCount(self._form["preload"], self._form["value_bytes"]).create(bin_, bins, state)
            case "own":
                raise StateError(
                    f"Bin {bin_} has no snapshot yet, and only the operator knows with what it began: let the query "
                    "run until it has snapshots of all bins."
                )

    def run(self, *_: Any) -> Effects:
        """Is not called."""
        raise NotImplementedError
