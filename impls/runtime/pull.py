"""Pulling bins from their old owners' environments on this host."""

import time
from collections import defaultdict
from collections.abc import Iterable
from contextlib import ExitStack

import lmdb

from impls.errors import StateError
from impls.runtime.order import Report, StepOrder
from impls.runtime.plan import Pull
from impls.runtime.state import copy_bin, read_size
from impls.runtime.store import Store, read_meta, store_path

__all__ = ["Puller", "pull_bins"]


class Puller:
    """The pulls of one worker in one epoch: in what order, and how many fit the byte budget."""

    def __init__(self, order: StepOrder, worker: int, txn: lmdb.Transaction, report: Report):
        self._order, self._worker, self._txn, self._report = order, worker, txn, report
        plan = order.written.plan
        self._mine = [p for p in plan.pulls if p.target == worker]
        self._missing = {b for b in order.awaiting if plan.routing[b] == worker}

    def planned(self) -> list[Pull]:
        """Returns the worker's pulls in the plan's order."""
        return self._mine

    def by_need(self, rates: tuple[list[int], list[int]], queues: dict[int, tuple[int, int]]) -> list[Pull]:
        """Returns the pulls that records and queues need, most wanted first, then the others in the plan's order."""
        need: dict[int, int] = defaultdict(int)
        for bin_, records in zip(*rates, strict=True):
            need[bin_] += records
        for bin_, (records, _) in queues.items():
            need[bin_] += records
        return sorted(self._mine, key=lambda p: -need[p.bin])

    def missing(self) -> set[int]:
        """Returns the bins routed here whose state has not come."""
        return self._missing

    def pull(self, pulls: list[Pull]) -> None:
        """Copies bins until the budget is spent; the first is always copied, so that a migration progresses."""
        budget = self._order.written.plan.budget_bytes
        done = pull_bins(self._order, pulls, self._txn, budget)
        self._missing -= {pull.bin for pull, _, _ in done}
        self._report.pulled = [pull.bin for pull, _, _ in done]
        self._report.pulled_bytes = sum(size for _, size, _ in done)
        if done:
            self._report.sizes = ([p.bin for p, _, _ in done], [size for _, size, _ in done])


def pull_bins(
    order: StepOrder, pulls: Iterable[Pull], txn: lmdb.Transaction, budget: int | None = None
) -> list[tuple[Pull, int, float]]:
    """Copies bins into a worker's transaction and returns (pull, bytes, milliseconds) of each that was copied.

    The source is read at its last commit, which must be of the epoch before or of this epoch: the old owner does not
    touch the bin in this epoch, so both hold the same state of it. Raises StateError when the source is not there.
    """
    done: list[tuple[Pull, int, float]] = []
    left = budget
    with ExitStack() as stack:
        views: dict[int, lmdb.Transaction] = {}
        for pull in pulls:
            if pull.source not in views:
                store = stack.enter_context(Store.open(store_path(order.state_dir, pull.source)))
                views[pull.source] = stack.enter_context(store.reading())
                _check_source(order, pull.source, views[pull.source])
            size = read_size(views[pull.source], pull.bin)[1]
            if left is not None and done and size > left:
                break
            start = time.perf_counter()
            copy_bin(views[pull.source], txn, pull.bin)
            done.append((pull, size, (time.perf_counter() - start) * 1e3))
            left = None if left is None else max(0, left - size)
    return done


def _check_source(order: StepOrder, source: int, view: lmdb.Transaction) -> None:
    meta, epoch = read_meta(view), order.written.epoch
    if meta is None or meta.query != order.query or meta.epoch not in {epoch - 1, epoch}:
        found = "no state of this query" if meta is None or meta.query != order.query else f"epoch {meta.epoch}"
        raise StateError(f"Worker {source} is to hand over bins in epoch {epoch}, but its state folder has {found}.")
