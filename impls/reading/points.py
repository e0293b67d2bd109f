"""`query.get`: the state of keys, read beside the workers from their environments, wherever the keys' bins are.

A bin that the plan of the epoch under way brings to another worker is there as soon as that worker has committed it.
Until then the old owner has it, at least as it was at the end of the epoch before. The reader looks up where a bin is
before and after it reads, and reads again if the bin has moved meanwhile.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from functools import cached_property
from pathlib import Path
from threading import BoundedSemaphore
from typing import Any, NamedTuple

import lmdb
import numpy as np

from impls.aggregation import GROUPING_KEY
from impls.driver.checkpoint import Checkpoint, form_of, settings_of
from impls.driver.control import Lent
from impls.driver.driver import Driver
from impls.driver.keeper import Keeper
from impls.driver.keystate import KeyState, StateRow
from impls.errors import CorruptStateError, StateError, UsageError
from impls.operators import DenseCount
from impls.operators.base import Operator
from impls.protocol.places import BinPlace
from impls.reading.cuts import Cut
from impls.reading.forms import ONLY_FIRST, Reader, reader_of
from impls.reading.keys import KeyReader, StoredKey
from impls.reading.stored import check_changelog
from impls.reading.texts import fields_of
from impls.reading.variables import Variables
from impls.spark.readiness import host_name
from impls.store.entries import stored_name
from impls.store.environment import DAMAGE, Store, read_meta, store_path
from impls.store.hashing import bin_of_hash, hash_bytes, hash_int64
from impls.store.lookup import count_at, entries_between, has_bin, keyed_entries, own_timers, timers_of_key
from impls.store.state import BinState
from impls.worker.state import read_state

_PATIENCE_S = 5.0  # for which an environment may be away, as when it is rebuilt
_PAUSE_S = 0.005
_AT_ONCE = 8  # readers: an environment has places for some hundred, and workers that pull need theirs


class _View(NamedTuple):
    """An environment at a worker's last commit.

    Attributes:
        txn: shows it.
        epoch: the last epoch that the worker has ended.
        begun: the last epoch in which it has dropped what it was to drop, before it pulled anything.
    """

    txn: lmdb.Transaction
    epoch: int
    begun: int


class PointReader:
    """Reads keys of a query that runs in this process; all methods may be called from any thread.

    Args:
        driver: the query's, which knows where bins are.
        checkpoint: the query's.
        operator: the one with which the query began.
        state_dir: folder of the workers' environments.
        in_sql: returns the value of an expression of Spark SQL.

    Raises:
        UsageError: the checkpoint does not say how state is read, or workers share a store.
    """

    def __init__(
        self, driver: Driver, checkpoint: Checkpoint, operator: Operator, state_dir: str, in_sql: Callable[[str], int]
    ):
        self._driver, self._checkpoint, self._state_dir = driver, checkpoint, state_dir
        self._operator, self._in_sql, self._bins = operator.keyed, in_sql, driver.controller.bins
        _, self._settings = settings_of(checkpoint.folder)
        if self._settings["state"] == "shared":
            raise UsageError("The state of this query is in the store that all workers share: look at it there.")
        self._form = form_of(checkpoint.folder)
        self._turns = BoundedSemaphore(_AT_ONCE)
        self._encoded = self._settings["key"] == GROUPING_KEY
        self._keys = KeyReader(self._form, columns=self._encoded or self._form["values"] == "processor")

    def get_many(self, keys: Iterable[Any]) -> list[KeyState]:
        """Returns the state of keys, in their order; see `impls.driver.lookups.Looked.get`."""
        return self._states([self._keys.of_value(key) for key in keys])

    def as_json(self, key: str) -> dict[str, Any]:
        """Returns epoch and rows, as `impls.reading.texts.fields_of` has them, of all keys that a text may mean."""
        states = self._states(self._keys.of_text(key))
        rows = [fields_of(row) for state in states for row in state.rows]
        return {"epoch": min(state.epoch for state in states), "rows": rows}

    def cut(self) -> Cut:
        """Returns the state of all keys at the end of the last epoch; see `impls.driver.lookups.Looked.state`."""
        return Cut.of(self._kept(), self._checkpoint.folder)

    def lend(self) -> Lent:
        """Returns the pin of a cut, for a reader in another process."""
        pin, release = self._kept().pin()
        return Lent(pin.to_json(), release)

    def _kept(self) -> Keeper:
        check_changelog(self._settings, self._checkpoint.folder)
        assert self._driver.keeper is not None, "a query with a changelog has files"
        return self._driver.keeper

    def _states(self, keys: Sequence[StoredKey]) -> list[KeyState]:
        """Reads keys again and again until each was read where its bin was before and behind it."""
        found: dict[int, KeyState] = {}
        wanted, until = [(key, self._bin_of(key)) for key in keys], time.monotonic() + _PATIENCE_S
        while len(found) < len(wanted):
            failure: Exception | None = None
            left = [(n, key, bin_) for n, (key, bin_) in enumerate(wanted) if n not in found]
            try:
                found |= self._attempt(left)
            except (*DAMAGE, StateError) as error:
                failure = error
            if len(found) < len(wanted):
                if time.monotonic() > until:
                    raise _given_up(failure)
                time.sleep(_PAUSE_S)
        return [found[n] for n in range(len(wanted))]

    def _attempt(self, wanted: Sequence[tuple[int, StoredKey, int]]) -> dict[int, KeyState]:
        """Returns the state of those keys whose bins have not moved meanwhile."""
        places = {bin_: self._driver.place(bin_) for _, _, bin_ in wanted}
        found = {}
        with self._turns, ExitStack() as opened:
            views = _Views(self._checkpoint.query, self._state_dir, opened)
            for n, key, bin_ in wanted:
                view, epoch = views.with_bin(bin_, places[bin_])
                found[n] = KeyState(key.shown, epoch, tuple(self._rows(view.txn, bin_, key)))
        stayed = {bin_ for bin_, place in places.items() if self._driver.place(bin_) == place}
        return {n: found[n] for n, _, bin_ in wanted if bin_ in stayed}

    def _rows(self, txn: lmdb.Transaction, bin_: int, key: StoredKey) -> Iterator[StateRow]:
        values = self._form["values"]
        if values == "dense":
            yield from self._count(txn, bin_, key)
            return
        entries = _entries(txn, bin_, values, key.raw)
        turned = values in ONLY_FIRST and BinState(txn, self._bins).shape(bin_)
        for row in (self._as_bytes if turned else self._read)(bin_, entries):
            yield row._replace(key=key.shown)

    def _count(self, txn: lmdb.Transaction, bin_: int, key: StoredKey) -> Iterator[StateRow]:
        assert key.number is not None, "keys of counts are integers"
        first = bin_ * DenseCount(self._form["keys"]).per_bin(self._bins)
        if 0 <= key.number < self._form["keys"]:
            yield StateRow(bin_, key.number, "value", "", None, count_at(txn, bin_, key.number - first))

    @cached_property
    def _read(self) -> Reader:
        return reader_of(self._form, columns=self._encoded, variables=self._variables())

    @cached_property
    def _as_bytes(self) -> Reader:
        return reader_of({**self._form, "values": "bytes"})

    def _variables(self) -> Variables | None:
        """Returns those of a processor, whose file the first epoch writes."""
        if self._form["values"] != "processor":
            return None
        return Variables(self._checkpoint.folder, self._driver.now_ms)

    def _bin_of(self, key: StoredKey) -> int:
        operator, bins = self._operator, self._bins
        method = type(operator).bin_sql
        if isinstance(operator, DenseCount) and method is DenseCount.bin_sql:
            assert key.number is not None, "keys of counts are integers"
            return min(max(key.number // operator.per_bin(bins), 0), bins - 1)
        if method is not Operator.bin_sql:
            literal = f"X'{key.raw.hex()}'" if key.number is None else f"cast('{key.number}' as bigint)"
            return self._in_sql(operator.bin_sql(literal, bins))
        if key.number is not None:
            return int(bin_of_hash(hash_int64(np.array([key.number], np.int64)), bins)[0])
        return int(bin_of_hash(np.array([hash_bytes(key.raw)], np.uint64), bins)[0])


def _given_up(failure: Exception | None) -> StateError:
    why = "its bin moved again and again" if failure is None else str(failure).rstrip(".")
    return StateError(f"The state of the key could not be read for {_PATIENCE_S:.0f} s: {why}.")


def _entries(txn: lmdb.Transaction, bin_: int, values: str, key: bytes) -> list[tuple[bytes, bytes]]:
    """Returns the entries of a key in a form of values."""
    if values == "keyed":
        return [*timers_of_key(txn, bin_, key), *keyed_entries(txn, bin_, key)]
    if values == "processor":
        return [*keyed_entries(txn, bin_, key), *own_timers(txn, bin_, key)]
    name = stored_name(b"", key)
    return entries_between(txn, bin_, name, name + b"\0")


class _Views:
    """Environments of this host, each opened once, until `opened` ends.

    Raises CorruptStateError or StateError for one that cannot be read now.
    """

    def __init__(self, query: str, state_dir: str, opened: ExitStack):
        self._query, self._state_dir, self._opened = query, Path(state_dir), opened
        self._views: dict[int, _View] = {}

    def with_bin(self, bin_: int, place: BinPlace) -> tuple[_View, int]:
        """Returns where a bin is, and the last epoch of which it has everything there."""
        if place.target is not None:
            with suppress(*DAMAGE, StateError):  # one that is not ready has not taken the bin either
                view = self._at(place.target, place.homes[1])
                if view.begun >= place.epoch and has_bin(view.txn, bin_):
                    return view, min(view.epoch, place.epoch)
        view = self._at(place.location, place.homes[0])
        return view, min(view.epoch, place.epoch if place.target is None else place.epoch - 1)

    def _at(self, worker: int, home: str) -> _View:
        if worker not in self._views:
            if home and home != host_name():
                raise UsageError(
                    f"Worker {worker} is on the host {home}: state is read on the driver's host only; "
                    "impls.read_state, or ./inv state --epoch, reads the checkpoint."
                )
            path = store_path(self._state_dir / home, worker)
            store = self._opened.enter_context(Store.open(path, readonly=True))
            if store.used_bytes() > (path / "data.mdb").stat().st_size:  # to read beyond its end ends the process
                raise CorruptStateError(f"The state in {path} is truncated.")
            self._views[worker] = self._view(path, self._opened.enter_context(store.reading(buffers=False)))
        return self._views[worker]

    def _view(self, path: Path, txn: lmdb.Transaction) -> _View:
        meta = read_meta(txn)
        if meta is None:
            raise CorruptStateError(f"The state in {path} is being made.")
        if meta.query != self._query:
            raise StateError(f"The state in {path} belongs to another query.")
        state = read_state(txn)
        return _View(txn, meta.epoch, -1 if state is None else state.begun)
