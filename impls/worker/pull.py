"""Pulling bins: which, in what order, from a neighbour's environment, another host's server or the checkpoint."""

import time
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import lmdb

from impls.durability.restore import RestoreRequest, restore
from impls.errors import CorruptStateError
from impls.faults import fault
from impls.protocol.order import EpochOrder
from impls.protocol.plan import EpochPlan, Pull
from impls.protocol.report import MovesReport
from impls.store.bins import check_arrived, check_places, copy_bin, drop_bin, read_size
from impls.store.environment import Store, store_path
from impls.store.pages import leaves_of
from impls.transfer.client import fetch
from impls.transfer.server import check_source
from impls.transfer.ticket import RefusedError, Ticket
from impls.worker.query import Task
from impls.worker.replicas import copy_replicas


class NetworkTraffic:
    """What came from other hosts, and how long that took."""

    def __init__(self) -> None:
        self._bytes: dict[str, int] = {}
        self._seconds: dict[str, float] = {}

    def add(self, host: str, size: int, seconds: float) -> None:
        """Adds bytes, and time that was spent on a host, for nothing perhaps."""
        self._bytes[host] = self._bytes.get(host, 0) + size
        self._seconds[host] = self._seconds.get(host, 0.0) + seconds

    def rows(self) -> tuple[list[Any], ...]:
        """Returns [host, bytes, milliseconds] of each host asked."""
        return tuple([host, self._bytes[host], round(self._seconds[host] * 1e3, 3)] for host in sorted(self._bytes))


def copied(
    task: Task, source: int, bins: Sequence[int], txn: lmdb.Transaction, network: NetworkTraffic
) -> Iterator[int]:
    """Copies bins from a worker's environment at its last commit, and yields each when it is here.

    Raises CorruptStateError when the environment is lost, stale, damaged or out of reach; the bins that were yielded
    are whole. Raises StateError when it is ahead of the epoch.
    """
    home = dict(task.order.seating.homes).get(source, task.host)
    take = _here(task, source, bins, txn) if home == task.host else _there(task, source, bins, txn, home, network)
    try:
        yield from take
    except RefusedError as error:
        where = "" if home == task.host else f" on {home}"
        kind = error.kind
        raise kind(f"Worker {source}{where} is to hand over bins in epoch {task.epoch}, but {error}.") from error


def _here(task: Task, source: int, bins: Sequence[int], txn: lmdb.Transaction) -> Iterator[int]:
    with (
        Store.open(store_path(task.state_dir, source), create=False, sync=task.spec.fsync) as store,
        store.reading(buffers=False) as view,
        leaves_of(store.path, view) as leaves,
    ):
        check_source(view, query=task.spec.query, epoch=task.epoch)
        for bin_ in bins:
            copy_bin(view, txn, bin_, leaves)
            yield bin_


def _there(  # noqa: PLR0917 - the task, what, where to and where from
    task: Task, source: int, bins: Sequence[int], txn: lmdb.Transaction, home: str, network: NetworkTraffic
) -> Iterator[int]:
    transfer, address = task.spec.transfer, dict(task.order.seating.servers).get(home, "")
    if transfer is None or not address:
        raise CorruptStateError(f"Host {home} hands out no bins.")
    ticket = Ticket(task.spec.query, task.order.generation, home, task.epoch, source, tuple(bins))
    sizes, since = dict(task.order.sizes), time.perf_counter()
    expected = sum(sizes.get(bin_, 0) for bin_ in bins)
    came = 0
    try:
        for bin_, size in fetch(transfer, address, ticket, txn, expected_bytes=expected):
            came += size
            yield bin_
    finally:
        network.add(home, came, time.perf_counter() - since)


Row = list[Any]


@dataclass(frozen=True)
class Pulled:
    """What was pulled: {bin: bytes of its state} in the order asked, bytes shipped, bins that the checkpoint gave.

    `entries` are those of each bin, in the same order; none of a shared store, where there is nothing to drop.
    """

    sizes: dict[int, int]
    shipped: int
    restored: int
    entries: tuple[int, ...] = ()
    network: tuple[Row, ...] = ()
    lost: tuple[Row, ...] = ()

    def moves(self) -> MovesReport:
        """Returns it as a part of a report."""
        return MovesReport(
            list(self.sizes), list(self.entries), self.shipped, self.restored, list(self.network), list(self.lost)
        )


class Pulls:
    """The pulls of one worker in one epoch: due() and pulled() in turn, until nothing is left.

    Attributes:
        missing: bins routed to the worker whose state has not come.
        swept: what nothing needs has had its turn.

    Args:
        order: the epoch's.
        worker: the worker.
        done: bins that it has pulled in this epoch before its task was started again.
    """

    def __init__(self, order: EpochOrder, worker: int, done: Collection[int] = ()):
        self._plan, self._sizes = order.written.plan, dict(order.sizes)
        routing = self._plan.routing
        mine = [pull for pull in self._plan.pulls if pull.target == worker and pull.bin not in done]
        self.missing = {bin_ for bin_, _ in order.elsewhere if routing[bin_] == worker} - set(done)
        if not self._plan.on_demand:
            mine = within_budget(mine, self._sizes, self._plan.budget_bytes)
        self._left = mine
        self._spent, self.swept = 0, False

    @property
    def sources(self) -> set[int]:
        """Old owners of what is left to be pulled."""
        return {pull.source for pull in self._left}

    @property
    def complete(self) -> bool:
        """Whether nothing is left that the epoch must pull."""
        return self.swept if self._plan.on_demand else not self._left

    def due(self, need: Mapping[int, int], final: Collection[int] | None = None, *, closing: bool = True) -> list[Pull]:
        """Returns the pulls to do now, in order.

        Args:
            need: records that wait for bins, queued or just come.
            final: old owners that change their bins no more; None for all.
            closing: what nothing needs may come too, once in an epoch.
        """
        open_ = [pull for pull in self._left if final is None or pull.source in final]
        if not self._plan.on_demand:
            return open_
        budget = None if self._plan.budget_bytes is None else self._plan.budget_bytes - self._spent
        if budget is not None and budget <= 0 and self._spent:
            return []
        if closing and not self.swept:
            return on_demand(open_, need, self._sizes, replace(self._plan, budget_bytes=budget))
        wanted = sorted((pull for pull in open_ if need.get(pull.bin)), key=lambda pull: -need[pull.bin])
        return within_budget(wanted, self._sizes, budget)

    def pulled(self, pulls: Collection[Pull], *, closing: bool = True) -> None:
        """Takes in that what due() returned is committed."""
        bins = {pull.bin for pull in pulls}
        self._left = [pull for pull in self._left if pull.bin not in bins]
        self.missing -= bins
        self._spent += sum(self._sizes.get(bin_, 0) for bin_ in bins)
        self.swept = self.swept or closing


def on_demand(pulls: Sequence[Pull], need: Mapping[int, int], sizes: Mapping[int, int], plan: EpochPlan) -> list[Pull]:
    """Returns the pulls that fit the plan's budget: by need, then in the background, at least one."""
    wanted = sorted((pull for pull in pulls if need.get(pull.bin)), key=lambda pull: -need[pull.bin])
    chosen = within_budget(wanted, sizes, plan.budget_bytes)
    if len(chosen) < len(wanted):
        return chosen
    left = plan.background_bytes
    if plan.budget_bytes is not None:
        rest = max(0, plan.budget_bytes - sum(sizes.get(pull.bin, 0) for pull in chosen))
        left = rest if left is None else min(rest, left)
    others = within_budget([pull for pull in pulls if not need.get(pull.bin)], sizes, left)
    if chosen and left is not None and sum(sizes.get(pull.bin, 0) for pull in others) > left:
        others = []  # the one that always comes has come already
    return chosen + others


def within_budget(pulls: Sequence[Pull], sizes: Mapping[int, int], budget: int | None) -> list[Pull]:
    """Returns the pulls, in order, that fit `budget` bytes, at least the first one so that there is progress.

    `sizes` are the bytes of the bins as last observed, so that every attempt on any host chooses the same.
    """
    if budget is None:
        return list(pulls)
    left = budget
    chosen: list[Pull] = []
    for pull in pulls:
        size = sizes.get(pull.bin, 0)
        if chosen and size > left:
            break
        chosen.append(pull)
        left = max(0, left - size)
    return chosen


def pull_bins(task: Task, pulls: Sequence[Pull], txn: lmdb.Transaction, *, from_checkpoint: bool = False) -> Pulled:
    """Copies bins into a worker's transaction.

    A source environment, here or on another host, is read at its last commit. A source that is lost, stale, damaged or
    out of reach is replaced by the checkpoint, and all are with `from_checkpoint`. Raises StateError when there is
    neither, CorruptStateError when the worker's own environment is damaged where the bins are to come.
    """
    spec, written = task.spec, task.order.written
    if spec.shared is not None:
        return Pulled(spec.shared.pull(written, pulls, txn), 0, 0)
    by_source: dict[int, list[int]] = defaultdict(list)
    wanted = {pull.bin: pull.source for pull in pulls}
    for bin_, source in wanted.items():
        by_source[source].append(bin_)
    check_places(txn, wanted)
    left: dict[int, int] = {}
    if written.plan.from_replica and spec.files is not None and not from_checkpoint:
        return _from_replicas(task, wanted, {pull.bin: pull.target for pull in pulls}, txn)
    network = NetworkTraffic()
    lost: list[Row] = []
    for source, bins in by_source.items():
        if from_checkpoint and spec.files is not None:
            left |= dict.fromkeys(bins, source)
            continue
        missing = dict.fromkeys(bins, source)
        try:
            for bin_ in copied(task, source, bins, txn, network):
                del missing[bin_]
                _half_way(task)
        except (CorruptStateError, lmdb.CorruptedError, lmdb.PageNotFoundError, lmdb.InvalidError) as error:
            if spec.files is None:
                raise CorruptStateError(f"Worker {source} cannot hand over its bins: {error}") from error
            left |= missing
            lost.append([source, str(error)])
    _restore(task, left, txn)
    found = [read_size(txn, bin_) for bin_ in wanted]
    sizes = {bin_: size for bin_, (_, size) in zip(wanted, found, strict=True)}
    entries = tuple(entries for entries, _ in found)
    return Pulled(sizes, sum(sizes.values()), len(left), entries, network.rows(), tuple(lost))


def _from_replicas(task: Task, states: dict[int, int], holders: dict[int, int], txn: lmdb.Transaction) -> Pulled:
    """Takes the new owner's own replicas and ships only what has changed since; a bin without one comes whole."""
    source = task.spec.source()
    assert source is not None, "pull_bins has checked it"
    have, without = copy_replicas(task, holders, txn)
    for bin_ in without:
        drop_bin(txn, bin_)
    request = RestoreRequest(states, have=have, open_from=task.epoch, progress=task.progress)
    done = restore(source, txn, task.epoch, request)
    _half_way(task)
    sizes = dict(done.sizes)
    entries = tuple(read_size(txn, bin_)[0] for bin_ in sizes)
    return Pulled(sizes, done.image_bytes + done.delta_bytes, len(without), entries)


def _restore(task: Task, states: dict[int, int], txn: lmdb.Transaction) -> None:
    durable = task.spec.source()
    if not states or durable is None:
        return
    for bin_ in states:
        drop_bin(txn, bin_)  # what a failed copy may have left
    check_places(txn, states)  # damage that `restore` comes upon would be taken for the checkpoint's
    restore(durable, txn, task.epoch, RestoreRequest(states, open_from=task.epoch, progress=task.progress))
    for bin_ in states:
        check_arrived(txn, bin_)
    _half_way(task)


def _half_way(task: Task) -> None:
    task.progress()
    fault("during-pull", **task.where)
