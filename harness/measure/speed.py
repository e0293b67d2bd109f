"""How fast one processor counts records: the program `harness.measure.speed`, given seconds behind its folder.

It does what a run's own processes do with each record: a block of the generator's is made and read, and counted in
entries of LMDB in one transaction. It says that it has no records yet when its state is there, begins at the line `go`,
and says a `Stretch`. The folder is a new one, and the caller's to delete.
"""

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import chain, repeat
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from generators.keys import make_keys
from generators.rates import make_schedule
from generators.stream import BLOCK_RECORDS, NUMBER_BYTES, Block, Share, Stream
from harness.lab.child import Parent, program
from impls.operators import HashCount
from impls.store.environment import Store
from impls.store.hashing import bin_of_hash, hash_int64
from impls.store.state import BinState

KEYS, BINS = 100_000, 64
_RATE = 10_000
_BLOCKS = 64
_WARM_UP = 4  # blocks


@dataclass(frozen=True)
class Stretch:
    """Records counted in a stretch of time; `cpu_s` is the processor time that took."""

    records: int
    cpu_s: float


def measure(
    path: Path,
    seconds: float,
    begin: Callable[[], object],
    *,
    wall: Callable[[], float] = time.perf_counter,
    cpu: Callable[[], float] = time.process_time,
) -> Stretch:
    """Makes a state in a new folder, calls `begin`, and counts records for `seconds` of wall clock time."""
    operator, blocks, records = HashCount(KEYS), _blocks(), 0
    with Store.open(path) as store:
        _create(store, operator)
        for _ in range(_WARM_UP):
            _count(store, operator, next(blocks))
        begin()
        began, end = cpu(), wall() + seconds
        while wall() < end:
            records += _count(store, operator, next(blocks))
        return Stretch(records, cpu() - began)


def _blocks() -> Iterator[Block]:
    """Yields blocks of the generator's without end, each made when it is asked for."""
    stream = Stream(make_keys("uniform", KEYS, 1.0, 1), make_schedule("constant", _RATE), 0, _BLOCKS * BLOCK_RECORDS)
    return chain.from_iterable(stream.blocks(Share(0, 1, 1), [0], BLOCK_RECORDS) for _ in repeat(None))


def _create(store: Store, operator: HashCount) -> None:
    with store.begin() as txn:
        state = BinState(txn, BINS)
        for bin_ in range(BINS):
            operator.create(bin_, BINS, state)
        state.write_sizes()


def _count(store: Store, operator: HashCount, block: Block) -> int:
    """Counts a block in one transaction and returns its number of records."""
    keys = _keys(block)
    with store.begin() as txn:
        state = BinState(txn, BINS)
        operator.apply(pa.table({"key": keys, "bin": bin_of_hash(hash_int64(keys), BINS)}), state)
        state.write_sizes()
    return len(keys)


def _keys(block: Block) -> NDArray[np.int64]:
    return np.array([int(value[:NUMBER_BYTES]) for value in block.values], np.int64)


def _measure(folder: Path, parent: Parent) -> None:
    def begin() -> None:
        parent.tell({"records": 0})
        parent.go.wait()

    parent.tell(asdict(measure(folder / "state", float(sys.argv[2]), begin)))


if __name__ == "__main__":
    sys.exit(program(_measure, patient=False))
