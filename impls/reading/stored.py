"""A query's checkpoint, read without opening it: nothing is written, and a query that runs goes on."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import lmdb
import numpy as np
from numpy.typing import NDArray

from impls.driver.base import Journals, read_base
from impls.driver.checkpoint import form_of, is_begun, settings_of
from impls.durability import frame as frames
from impls.durability.files import Files
from impls.durability.restore import RestoreRequest, RestoreSource, restore
from impls.durability.schedule import read_manifest
from impls.durability.snapshot import map_of
from impls.errors import StateError, UsageError
from impls.operators import DenseCount, HashCount
from impls.operators.base import Effects, Operator
from impls.protocol.controller import Controller
from impls.protocol.mechanism import Mechanism
from impls.store.environment import MAP_BYTES, Store
from impls.store.state import BinState


@dataclass(frozen=True)
class EndedEpoch:
    """An epoch of a query that has ended.

    Attributes:
        epoch: its number.
        location: int32, shape (B,): which worker held each bin at its end.
        now: processing time of the epoch, ms, None where the operator asks for none.
    """

    epoch: int
    location: NDArray[np.int32]
    now: int | None


class StoredQuery:
    """What a checkpoint says of its query.

    Attributes:
        folder: the checkpoint folder.
        query: identity of the query.
        settings: with which it began.
        form: how its state is read, see `impls.reading.forms`.
        files: changelog and snapshots.

    Raises:
        UsageError: there is no checkpoint, a file of it is damaged, or it keeps no changelog.
    """

    def __init__(self, folder: Path, log_dir: str | None = None):
        self.folder, own = folder.absolute(), folder.absolute() / "rescale"
        _check_single(self.folder)
        self.query, self.settings = settings_of(self.folder)
        self.form = form_of(self.folder)
        if not self.settings["changelog"]:
            shared = self.settings["state"] == "shared"
            where = "in the store that all workers share" if shared else "in state_dir alone"
            raise UsageError(f"The query of {folder} keeps no changelog: its state is {where}.")
        self.files = Files(log_dir or str(own))
        self._shown = read_manifest(self.files, self.query, self.bins).file_epoch  # first: the journals go further
        self._journals = _journals(own, self.query)

    def mark(self) -> tuple[Any, ...]:
        """Returns what is another one where the query has gone on since."""
        base, plans, observed = self._journals.base, self._journals.plans, self._journals.observed
        return self._shown.tobytes(), None if base is None else base.epoch, len(plans), len(observed)

    @property
    def bins(self) -> int:
        """The number of bins."""
        return int(self.settings["bins"])

    def source(self) -> RestoreSource:
        """Returns where bins are restored from; what they begin with comes from the form."""
        return RestoreSource(self.files, self.query, self.bins, _Beginning(self.form))

    def ended(self, epoch: int | None) -> EndedEpoch:
        """Returns an epoch, the last one by default.

        Raises UsageError where it has not ended yet, or its state is not kept any more.
        """
        journals, newest = self._journals, int(self._shown.max())
        base = -1 if journals.base is None else journals.base.epoch
        last = max([seen.epoch for seen in journals.observed if not seen.stopped], default=base)
        first = max(base, newest, 0)
        if last < 0:
            raise UsageError(f"No epoch of the query of {self.folder} has ended yet.")
        if newest < 0 and not self.files.names(frames.FOLDER):
            raise UsageError(
                f"There are neither snapshots nor a changelog in {self.files.place}: name the log_dir of the query."
            )
        wanted = last if epoch is None else epoch
        if not first <= wanted <= last:
            raise UsageError(f"The checkpoint {self.folder} has the state at the ends of epochs {first} to {last}.")
        planless = cast(Mechanism, None)  # which only plans ask
        controller = Controller(np.zeros(self.bins, np.int32), planless)
        journals.replay(controller, wanted)
        clock = next((plan.clock for plan in reversed(journals.plans) if plan.epoch == wanted), None)
        return EndedEpoch(wanted, controller.location, None if clock is None else clock.now)


def _check_single(folder: Path) -> None:
    """Raises UsageError for the checkpoint of a chain, whose stages have one each."""
    stages = sorted(path.parents[1].name for path in folder.glob("*/rescale/query.json"))
    if stages and not is_begun(folder):
        raise UsageError(f"{folder} is the checkpoint of a chain: name that of a stage, {' or '.join(stages)} in it.")


def _journals(own: Path, query: str) -> Journals:
    """Returns the journals behind a base that was there all the while: one that is written empties them."""
    while True:
        base = read_base(own, query)
        journals = Journals.read(own, base)
        if read_base(own, query) == base:
            return journals


@contextmanager
def restored(stored: StoredQuery, ended: EndedEpoch, scratch: str | None = None) -> Iterator[lmdb.Transaction]:
    """Yields a transaction with the state of all bins at the end of an epoch, restored into a folder that goes again.

    Args:
        stored: the query.
        ended: the epoch.
        scratch: where the folder is made; by default where temporary files are.

    Raises:
        StateError: a file is missing or damaged, which the message names, or the folder has no room.
    """
    room = max(MAP_BYTES, map_of(stored.files))
    with TemporaryDirectory(prefix="state-", dir=scratch) as folder:
        while True:
            with Store.open(Path(folder) / str(room), map_bytes=room) as store:
                txn = store.begin()
                try:
                    if _fits(stored, ended, txn, folder):
                        yield txn
                        return
                finally:
                    txn.abort()
            room *= 2  # what bins begin with is in no file


def _fits(stored: StoredQuery, ended: EndedEpoch, txn: lmdb.Transaction, folder: str) -> bool:
    """Restores all bins, and returns whether the map had room for them."""
    owners = dict(enumerate(ended.location.tolist()))
    try:
        restore(stored.source(), txn, ended.epoch, RestoreRequest(owners, past=True))
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
