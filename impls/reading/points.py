"""`query.get`: the state of keys, read beside the workers from their environments, wherever the keys' bins are.

A bin that the plan of the epoch under way brings to another worker is there as soon as that worker has committed it.
Until then the old owner has it, at least as it was at the end of the epoch before. The reader looks up where a bin is
before and after it reads, and reads again if the bin has moved meanwhile.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from impls.aggregation import GROUPING_KEY
from impls.driver.checkpoint import Checkpoint, form_of, settings_of
from impls.driver.control import Lent
from impls.driver.driver import Driver
from impls.driver.keeper import Keeper
from impls.driver.keystate import KeyState, StateRow
from impls.errors import StateError, UsageError
from impls.operators import DenseCount
from impls.operators.base import Operator
from impls.reading.cuts import Cut
from impls.reading.environments import Environments, Views
from impls.reading.forms import ONLY_FIRST, Reader, reader_of
from impls.reading.keys import KeyReader, StoredKey
from impls.reading.stored import check_changelog
from impls.reading.texts import fields_of
from impls.reading.variables import Variables
from impls.store.environment import DAMAGE
from impls.store.hashing import bin_of_hash, hash_bytes, hash_int64
from impls.store.lookup import KeyEntries
from impls.worker.query import QuerySpec

_PATIENCE_S = 5.0  # for which an environment may be away, as when it is rebuilt
_PAUSE_S = 0.005


class PointReader:
    """Reads keys of a query that runs in this process; all methods may be called from any thread.

    Args:
        driver: the query's, which knows where bins are.
        checkpoint: the query's.
        spec: what is constant for its life; the operator is the one with which it began.
        in_sql: returns the value of an expression of Spark SQL.

    Raises:
        UsageError: the checkpoint does not say how state is read, or workers share a store.
    """

    def __init__(self, driver: Driver, checkpoint: Checkpoint, spec: QuerySpec, in_sql: Callable[[str], int]):
        self._driver, self._checkpoint = driver, checkpoint
        self._environments = Environments(
            checkpoint.query, checkpoint.generation, spec.state_dir, spec.transfer, lambda: driver.servers
        )
        self._operator, self._in_sql, self._bins = spec.operator.keyed, in_sql, driver.controller.bins
        _, self._settings = settings_of(checkpoint.folder)
        if self._settings["state"] == "shared":
            raise UsageError("The state of this query is in the store that all workers share: look at it there.")
        self._form = form_of(checkpoint.folder)
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
        wanted, begun = [(key, self._bin_of(key)) for key in keys], time.monotonic()
        while len(found) < len(wanted):
            failure: Exception | None = None
            left = [(n, key, bin_) for n, (key, bin_) in enumerate(wanted) if n not in found]
            try:
                found |= self._attempt(left)
            except (*DAMAGE, StateError) as error:
                failure = error
            if len(found) < len(wanted):
                if (waited_s := time.monotonic() - begun) > _PATIENCE_S:
                    raise _given_up(failure, waited_s)
                time.sleep(_PAUSE_S)
        return [found[n] for n in range(len(wanted))]

    def _attempt(self, wanted: Sequence[tuple[int, StoredKey, int]]) -> dict[int, KeyState]:
        """Returns the state of those keys whose bins have not moved meanwhile."""
        places = {bin_: self._driver.place(bin_) for _, _, bin_ in wanted}
        names = {n: (bin_, self._name(bin_, key)) for n, key, bin_ in wanted}
        asked = [(names[n], places[bin_]) for n, _, bin_ in wanted]
        looked = Views(self._environments, self._form["values"], asked)
        found = {}
        for n, key, bin_ in wanted:
            where = looked.of(names[n], places[bin_])
            found[n] = KeyState(key.shown, where.epoch, tuple(self._rows(where.found, bin_, key)))
        stayed = {bin_ for bin_, place in places.items() if self._driver.place(bin_) == place}
        return {n: found[n] for n, _, bin_ in wanted if bin_ in stayed}

    def _name(self, bin_: int, key: StoredKey) -> bytes:
        """Returns the name of a key for whoever looks at its bin, see `impls.store.lookup.Key`."""
        if self._form["values"] != "dense":
            return key.raw
        assert key.number is not None, "keys of counts are integers"
        slot = key.number - bin_ * DenseCount(self._form["keys"]).per_bin(self._bins)
        return slot.to_bytes(8, "big") if 0 <= key.number < self._form["keys"] else b""

    def _rows(self, found: KeyEntries, bin_: int, key: StoredKey) -> Iterator[StateRow]:
        values, entries = self._form["values"], found.opened(self._form["values"], key.raw)
        if values == "dense":
            for _, raw in entries:
                yield StateRow(bin_, key.shown, "value", "", None, int.from_bytes(raw, "little"))
            return
        turned = values in ONLY_FIRST and found.shape
        for row in (self._as_bytes if turned else self._read)(bin_, entries):
            yield row._replace(key=key.shown)

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


def _given_up(failure: Exception | None, waited_s: float) -> StateError:
    why = "its bin moved again and again" if failure is None else str(failure).rstrip(".")
    return StateError(f"The state of the key could not be read for {waited_s:.0f} s: {why}.")
