"""Copying bins from the environment of the worker that had them: on this host, or by the server of another one."""

import time
from collections.abc import Iterator, Sequence
from typing import Any

import lmdb

from impls.errors import CorruptStateError
from impls.store.bins import copy_bin
from impls.store.environment import Store, store_path
from impls.store.pages import leaves_of
from impls.transfer.client import fetch
from impls.transfer.source import check_source
from impls.transfer.ticket import RefusedError, Ticket
from impls.worker.query import Task

__all__ = ["Network", "copied"]


class Network:
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


def copied(task: Task, source: int, bins: Sequence[int], txn: lmdb.Transaction, network: Network) -> Iterator[int]:
    """Copies bins from a worker's environment at its last commit, and yields each when it is here.

    Raises CorruptStateError when the environment is lost, stale, damaged or out of reach; the bins that were yielded
    are whole. Raises StateError when it is ahead of the epoch.
    """
    home = dict(task.order.homes).get(source, task.host)
    take = _here(task, source, bins, txn) if home == task.host else _there(task, source, bins, txn, home, network)
    try:
        yield from take
    except RefusedError as error:
        where = "" if home == task.host else f" on {home}"
        kind = error.kind
        raise kind(f"Worker {source}{where} is to hand over bins in epoch {task.epoch}, but {error}.") from error


def _here(task: Task, source: int, bins: Sequence[int], txn: lmdb.Transaction) -> Iterator[int]:
    with (
        Store.open(store_path(task.state_dir, source), create=False) as store,
        store.reading(buffers=False) as view,
        leaves_of(store.path, view) as leaves,
    ):
        check_source(view, query=task.spec.query, epoch=task.epoch)
        for bin_ in bins:
            copy_bin(view, txn, bin_, leaves)
            yield bin_


def _there(  # noqa: PLR0917 - the task, what, where to and where from
    task: Task, source: int, bins: Sequence[int], txn: lmdb.Transaction, home: str, network: Network
) -> Iterator[int]:
    transfer, address = task.spec.transfer, dict(task.order.servers).get(home, "")
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
