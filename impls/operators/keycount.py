"""Key-count: the running number of records per key, the literature's migration workload.

`DenseCount` keeps an array of counts per bin (Megaphone's "key-count", section 5.2), `HashCount` an entry per key
("hash-count", same place). Both emit one result per key and epoch: the count after the epoch as little-endian int64.

`cost_us` and `cost` ("wait" or "compute") say what a record costs besides: waiting or computing, see `pay`.
"""

import time
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from impls.errors import UsageError
from impls.operators.base import RecordOperator
from impls.store.hashing import bin_of_hash, hash_int64
from impls.store.records import Results
from impls.store.state import BinState

COSTS = ("wait", "compute")
VALUE_BYTES_MAX = 1 << 20
_COST_US_MAX = 1_000_000
_WORK = np.arange(2_000, dtype=np.uint64)  # a few microseconds of work


def _check_cost(cost_us: float, cost: str, value_bytes: int = 0) -> None:
    """Raises UsageError for an impossible cost or number of bytes."""
    if cost not in COSTS:
        raise UsageError(f"The cost of a record is {' or '.join(COSTS)}, not {cost!r}.")
    if not 0 <= cost_us <= _COST_US_MAX:  # false for NaN too
        raise UsageError(f"The cost of a record must be from 0 to {_COST_US_MAX} µs, not {cost_us:g}.")
    if not 0 <= value_bytes <= VALUE_BYTES_MAX:
        raise UsageError(f"The bytes of value per key must be from 0 to {VALUE_BYTES_MAX}, not {value_bytes}.")


def pay(records: int, cost_us: float, cost: str) -> None:
    """Spends the cost of all records in one go; results never depend on it.

    Waiting is a remote call or I/O: it takes no processor, so that more workers finish sooner even on few cores.
    Computing takes that much processor time of this thread, however long that lasts on a busy machine.
    """
    if cost == "wait":
        time.sleep(records * cost_us / 1e6)
        return
    end = time.thread_time() + records * cost_us / 1e6
    while time.thread_time() < end:
        np.bitwise_count(_WORK).sum()


def padding(name: bytes, size: int) -> bytes:
    """Returns `size` bytes that follow from a key's name alone."""
    return (name * -(-size // max(len(name), 1)))[:size]


def _eight_bytes(values: NDArray[np.int64], order: str) -> list[bytes]:
    out: list[bytes] = values.astype(f"{order}i8").view("V8").tolist()
    return out


@dataclass(frozen=True)
class DenseCount(RecordOperator):
    """Counts keys 0..keys-1 in an array per bin; a bin is a contiguous range of keys."""

    keys: int
    cost_us: float = 0.0
    cost: str = "wait"
    key_type: ClassVar[Literal["binary", "long"]] = "long"
    has_entries: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _check_cost(self.cost_us, self.cost)

    def per_bin(self, bins: int) -> int:
        """Returns the number of keys of a bin."""
        return -(-self.keys // bins)

    def identity(self) -> dict[str, Any]:
        """Returns `keys`, from which a key's bin and slot follow."""
        return {"keys": self.keys}

    def state_form(self) -> dict[str, Any]:
        """Says that there is a count of each key."""
        return {"values": "dense", "begins": "dense", "keys": self.keys}

    def bin_sql(self, key: str, bins: int) -> str:
        """Returns key // keys per bin, as SQL: the top bits of the key's index."""
        return f"coalesce(cast(least(greatest(floor({key} / {self.per_bin(bins)}), 0), {bins - 1}) as int), 0)"

    def outside(self, records: pa.Table) -> NDArray[np.bool_] | None:
        """Returns which records have a key that is not 0 to keys - 1."""
        keys = records.column("key").to_numpy()
        outside: NDArray[np.bool_] = (keys < 0) | (keys >= self.keys)
        return outside if outside.any() else None

    def create(self, bin_: int, bins: int, state: BinState) -> None:
        """Creates the bin's zero counts."""
        state.create_dense(bin_, self.per_bin(bins))

    def apply(self, records: pa.Table, state: BinState) -> Results:
        """Counts the records; see `RecordOperator`."""
        if self.cost_us:
            pay(len(records), self.cost_us, self.cost)
        keys, bins = records.column("key").to_numpy(), records.column("bin").to_numpy()
        first_key = self._first_keys(bins, state)
        first, counts = state.add_to_slots(bins, keys - first_key)
        return Results(bins[first], _eight_bytes(keys[first], ">"), _eight_bytes(counts, "<"))

    def _first_keys(self, bins: NDArray[np.int32], state: BinState) -> NDArray[np.int64]:
        return bins.astype(np.int64) * self.per_bin(state.bins)


@lru_cache(maxsize=1)
def _keys_by_bin(keys: int, bins: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    bin_of = bin_of_hash(hash_int64(np.arange(keys, dtype=np.int64)), bins)
    order = np.argsort(bin_of, kind="stable")
    return order, np.searchsorted(bin_of[order], np.arange(bins + 1))


@dataclass(frozen=True)
class HashCount(RecordOperator):
    """Counts any 64-bit integer keys in an entry per key; `preload` keys 0..preload-1 start with an entry of 0.

    An entry is the count and `value_bytes` bytes that follow from the key, so that state per key can be swept (1, 10
    and 100 KB in Trisk, SoCC 2021). Each update writes all of these bytes, as an operator does that keeps one object
    per key.

    No parameter is part of the identity: an entry lies where its key's hash says, a missing one counts as 0, and only
    the count of an entry is ever read.
    """

    preload: int = 0
    value_bytes: int = 0
    cost_us: float = 0.0
    cost: str = "wait"
    key_type: ClassVar[Literal["binary", "long"]] = "long"

    def __post_init__(self) -> None:
        _check_cost(self.cost_us, self.cost, self.value_bytes)

    def state_form(self) -> dict[str, Any]:
        """Says that an entry begins with a count, and which there are from the beginning."""
        return {"values": "count", "begins": "preload", "preload": self.preload, "value_bytes": self.value_bytes}

    def create(self, bin_: int, bins: int, state: BinState) -> None:
        """Creates the entries of the bin's preloaded keys."""
        if self.preload:
            order, edges = _keys_by_bin(self.preload, bins)
            names = _eight_bytes(order[edges[bin_] : edges[bin_ + 1]], ">")
            state.create_entries(bin_, ((name, bytes(8) + padding(name, self.value_bytes)) for name in names))

    def apply(self, records: pa.Table, state: BinState) -> Results:
        """Counts the records; see `RecordOperator`."""
        _keys_by_bin.cache_clear()  # 8 bytes a key, which only the creation of bins needs
        if self.cost_us:
            pay(len(records), self.cost_us, self.cost)
        distinct, first, counts = np.unique(records.column("key").to_numpy(), return_index=True, return_counts=True)
        bins = records.column("bin").to_numpy()[first]
        order = np.argsort(bins.astype(np.uint16), kind="stable")  # as the store has them; 16 bits take no comparisons
        bins, distinct, counts = bins[order], distinct[order], counts[order]
        names, places = _eight_bytes(distinct, ">"), bins.tolist()
        old = state.get_many(places, names)
        before = np.frombuffer(b"".join(v[:8] if v else bytes(8) for v in old), "<i8")
        after = _eight_bytes(before + counts, "<")
        state.put_many(places, names, self._values(names, after), old)
        return Results(bins, names, after)

    def _values(self, names: list[bytes], counts: list[bytes]) -> list[bytes]:
        if not self.value_bytes:
            return counts
        return [count + padding(name, self.value_bytes) for name, count in zip(names, counts, strict=True)]
