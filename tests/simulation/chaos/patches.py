"""What is put in place of time, of random identities, and around the places where attempts hand over."""

import contextlib
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any
from unittest import mock

import lmdb

from chaos.cluster import Cluster
from chaos.network import Network
from chaos.parameters import Parameters
from chaos.violation import require
from impls import faults
from impls.driver import checkpoint, driver
from impls.driver.journal import Journal
from impls.durability import schedule
from impls.durability.files import Files
from impls.protocol import changing, events
from impls.protocol.order import EpochOrder
from impls.protocol.plan import WrittenPlan
from impls.store import environment, lookup, moving, packs
from impls.store import environment as stores
from impls.store.environment import Store
from impls.transfer import client
from impls.worker import attempts, held, opening, replicas

Wrote = Callable[[str, bytes], None]
Wiped = Callable[[Path], None]


@contextlib.contextmanager
def simulated(
    cluster: Cluster, parameters: Parameters, hook: faults.Hook, wrote: Wrote, wiped: Wiped
) -> Iterator[None]:
    """Makes the runtime see the cluster's clock and identities from the seed, and attempts stop at points."""
    random = Random(parameters.seed + 4)
    identities = SimpleNamespace(uuid4=lambda: uuid.UUID(int=random.getrandbits(128), version=4))
    with contextlib.ExitStack() as stack:
        stack.enter_context(clocked(cluster.clock))
        for module in (checkpoint, environment, events, stores):
            stack.enter_context(mock.patch.object(module, "uuid", identities))
        stack.enter_context(packing(parameters.seed))
        stack.enter_context(small_maps(parameters.seed))
        stack.enter_context(large_states(parameters.seed))
        stack.enter_context(mock.patch.object(checkpoint, "BASE_EPOCHS", parameters.base_epochs))
        stack.enter_context(mock.patch.object(changing, "PROOF_EPOCHS", parameters.proof_epochs))
        stack.enter_context(mock.patch.object(opening, "set_aside", _set_aside(cluster, wiped)))
        stack.enter_context(mock.patch.object(Files, "write", _write(cluster, wrote, hook)))
        stack.enter_context(mock.patch.object(Files, "read", _read(cluster)))
        stack.enter_context(mock.patch.object(Journal, "append", _append(hook)))
        stack.enter_context(mock.patch.object(Journal, "rewrite", _rewrite(hook)))
        stack.enter_context(mock.patch.object(Store, "begin", _begin(cluster)))
        faults.install(hook)
        try:
            yield
        finally:
            faults.install(None)


@contextlib.contextmanager
def clocked(clock: Any) -> Iterator[None]:
    """Every module of the runtime sees `clock` in place of `time`, whatever speed the machine has."""
    with contextlib.ExitStack() as stack:
        for name, module in list(sys.modules.items()):
            if name.partition(".")[0] == "impls" and vars(module).get("time") is time:
                stack.enter_context(mock.patch.object(module, "time", clock))
        yield


@contextlib.contextmanager
def packing(seed: int) -> Iterator[None]:
    """With every other seed even the few entries of a simulated bin move in packs."""
    with mock.patch.object(moving, "LEAST", 1 if seed % 2 else moving.LEAST), mock.patch.object(packs, "_BYTES", 60):
        yield


SMALL_MAP = 20 << 10  # five pages: hardly more than an empty environment


@contextlib.contextmanager
def small_maps(seed: int) -> Iterator[None]:
    """With every third seed a worker's environment and that of its replicas are full again and again, and grow."""
    with contextlib.ExitStack() as stack:
        for module in (held, replicas) if seed % 3 == 1 else ():
            stack.enter_context(mock.patch.object(module, "MAP_BYTES", SMALL_MAP))
        yield


LARGE_SHARE = 20  # bytes


@contextlib.contextmanager
def large_states(seed: int) -> Iterator[None]:
    """With every fifth seed states are large beside what an epoch may write of them: no epoch is to write more.

    An epoch behind a driver's start neither, which the driver must know the sizes of bins for.
    """
    plain = driver.Driver._order

    def order(self: driver.Driver, written: WrittenPlan) -> EpochOrder:
        found, sizes = plain(self, written), self.controller.size
        cycle, asked = int(sizes.sum()) // LARGE_SHARE, int(sizes[list(found.snapshot)].sum())
        most = 2 * LARGE_SHARE + int(sizes.max())
        what = f"epoch {written.epoch} is to write snapshots of {asked} bytes, {most} are allowed"
        require(asked <= most or cycle <= written.epoch + 1, "snapshots", what)  # else a bin may be due by its age
        return found

    with contextlib.ExitStack() as stack:
        if seed % 5 == 3:
            stack.enter_context(mock.patch.object(schedule, "_SHARE_BYTES", LARGE_SHARE))
            stack.enter_context(mock.patch.object(driver.Driver, "_order", order))
        yield


@contextlib.contextmanager
def networked(cluster: Cluster, network: Network) -> Iterator[None]:
    """Has tasks find the simulated servers, and pullers ask them."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(attempts, "offer", network.offer))
        stack.enter_context(mock.patch.object(client, "_Reader", network.reader()))
        stack.enter_context(mock.patch.object(lookup, "Store", SimpleNamespace(open=_open_beside_writers)))
        yield


def _open_beside_writers(path: Path, *, readonly: bool) -> Store:
    """A server is a process of its own; here whoever opens an environment first opens it for all."""
    assert readonly, "a server only reads"
    return Store.open(path, create=False)


def _write(cluster: Cluster, wrote: Wrote, hook: faults.Hook) -> Any:
    plain = Files.write

    def write(self: Files, name: str, data: bytes) -> None:
        hook("write", {})
        plain(self, name, data)
        wrote(name, data)
        cluster.point("written")

    return write


def _append(hook: faults.Hook) -> Any:
    plain = Journal.append

    def append(self: Journal, entry: dict[str, Any]) -> None:
        plain(self, entry)
        hook("appended", {})

    return append


def _rewrite(hook: faults.Hook) -> Any:
    plain = Journal.rewrite

    def rewrite(self: Journal, entries: Iterable[dict[str, Any]], *, base: int) -> None:
        hook("rewrite", {})
        plain(self, entries, base=base)

    return rewrite


def _read(cluster: Cluster) -> Any:
    plain = Files.read

    def read(self: Files, name: str) -> bytes | None:
        cluster.point("read")
        return plain(self, name)

    return read


def _set_aside(cluster: Cluster, wiped: Wiped) -> Any:
    plain = opening.set_aside

    def set_aside(path: Path) -> Path | None:
        cluster.die_if_killed()
        wiped(path)
        aside = plain(path)
        cluster.point("is aside")
        return aside

    return set_aside


def _begin(cluster: Cluster) -> Any:
    """LMDB's own lock would stop the one thread that may run: who finds it taken waits as for any other lock."""
    plain, writing = Store.begin, {}

    def begin(self: Store) -> lmdb.Transaction:
        cluster.point("begin")
        while self in writing and _under_way(writing[self]):
            cluster.clock.sleep(0.1)
        writing[self] = plain(self)
        return writing[self]

    return begin


def _under_way(txn: lmdb.Transaction) -> bool:
    try:
        txn.id()
    except lmdb.Error:
        return False
    return True
