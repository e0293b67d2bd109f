"""Moving state while the query is down: what the restart mechanisms do between stop and start."""

from collections import defaultdict

import numpy as np
from numpy.typing import NDArray

from impls.runtime.order import StepOrder
from impls.runtime.plan import Pull
from impls.runtime.pull import pull_bins
from impls.runtime.store import Store, at_epoch, new_meta, read_meta, store_path, write_meta

__all__ = ["relocate"]


def relocate(order: StepOrder, location: NDArray[np.int32], goal: NDArray[np.int32]) -> tuple[list[Pull], int]:
    """Copies every misplaced bin to its goal worker and returns (the moves, bytes copied).

    Safe to repeat: each worker's copies commit at once, sources are kept until an epoch drops them.
    Raises StateError when a source is missing.
    """
    moves = [Pull(int(b), int(location[b]), int(goal[b])) for b in np.flatnonzero(location != goal)]
    by_target: dict[int, list[Pull]] = defaultdict(list)
    for move in moves:
        by_target[move.target].append(move)
    return moves, sum(_fill(order, target, pulls) for target, pulls in by_target.items())


def _fill(order: StepOrder, target: int, pulls: list[Pull]) -> int:
    epoch, generation = order.written.epoch - 1, order.written.generation
    with Store.open(store_path(order.state_dir, target)) as store:
        txn = store.begin()
        try:
            meta = read_meta(txn)
            if meta is None or meta.query != order.query or meta.epoch < epoch:
                meta = new_meta(order.query, target, epoch, generation)
            copied = pull_bins(order, pulls, txn)
            write_meta(txn, at_epoch(meta, epoch, generation))
            txn.commit()
        except BaseException:
            txn.abort()
            raise
    return sum(size for _, size, _ in copied)
