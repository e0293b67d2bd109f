"""Part pulls: how fast bins come from an environment on the same host, and from another host, without Spark.

As root the other host has a network of its own, whose delay is varied; else it is another loopback address.

`python -m harness.suites.perf.pulls FOLDER HOST` is that host: it reads the settings of `Transfer` from the first line
of its standard input, prints its address, and hands out the bins in a folder until its standard input ends.
"""

import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import lmdb
import numpy as np

from harness.files import ROOT
from harness.lab.hosts.cluster import cluster
from harness.lab.hosts.isolated import can_isolate
from harness.lab.waiting import wait_for
from harness.suites.perf.part import Check, Part, PartResult, Scale, Spread, Table
from impls.errors import StateError
from impls.store.bins import copy_bin
from impls.store.environment import Meta, Store, store_path, write_meta
from impls.store.pages import leaves_of
from impls.store.state import BinState
from impls.transfer.client import fetch, offer
from impls.transfer.settings import Transfer, certificate_of
from impls.transfer.ticket import Ticket

QUERY, GENERATION = "pulls", 1
_DEADLINE_S = 60.0


def main(arguments: Sequence[str]) -> int:
    """Serves as a host of a query would."""
    folder, host = arguments
    transfer = Transfer.from_json(sys.stdin.buffer.readline())
    addresses: list[str] = []

    def is_up() -> bool:
        addresses[:] = [offer(transfer, query=QUERY, generation=GENERATION, host=host, state_dir=folder)]
        return bool(addresses[0])

    wait_for(is_up, f"a server at {host}", _DEADLINE_S)
    sys.stdout.write(f"{addresses[0]}\n")
    sys.stdout.flush()
    sys.stdin.buffer.read()
    return 0


_BINS = 64
_EPOCH = 1
_DENSE_SLOTS = 25_000_000  # 200 MB
_HASH_KEYS = 1_000_000
_ROUNDS = 5
_DELAYS = ("", "delay 2ms", "delay 10ms")
_LOOPBACK = "127.0.0.2"
_BOUND_MB_S = 100.0
_END_DEADLINE_S = 10.0

Pull = Callable[[lmdb.Transaction], int]


def _fill(folder: Path, worker: int, kind: str, number: int) -> int:
    """Makes a worker's environment with so many dense slots or hash entries, and returns the bytes of its state."""
    with Store.open(store_path(folder, worker)) as store, store.begin() as txn:
        state = BinState(txn, _BINS)
        for bin_ in range(_BINS):
            if kind == "dense":
                state.create_dense(bin_, number // _BINS)
                continue
            keys = np.sort(np.random.default_rng(bin_).integers(0, 1 << 62, number // _BINS)).astype(">u8")
            state.create_entries(bin_, [(bytes(key), bytes(8)) for key in keys.view("V8")])
        size = sum(size for _, size in state.write_sizes())
        write_meta(txn, Meta.new(QUERY, worker, _EPOCH - 1, GENERATION))
    return size


@contextmanager
def _handed_out(folder: Path, host: str, transfer: Transfer, within: Sequence[str] = ()) -> Iterator[str]:
    """Hands out a folder's bins, by a process that a program may put elsewhere, and yields the address."""
    command = [*within, sys.executable, "-m", "harness.suites.perf.pulls", str(folder), host]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(transfer.to_json() + b"\n")
            process.stdin.flush()
            address = process.stdout.readline().decode().strip()
            if not address:
                raise StateError(f"Nothing hands out bins at {host}.")
            yield address
        finally:
            process.stdin.close()
            process.wait(_END_DEADLINE_S)
            for lock in folder.glob(".transfer-*"):
                lock.unlink()


def _mb_s(target: Path, rounds: int, *pulls: Pull, clock: Callable[[], float] = time.perf_counter) -> list[Spread]:
    """Returns the speeds of several pulls, in turns, each into new environments, commits included."""
    speeds: list[list[float]] = [[] for _ in pulls]
    for _ in range(rounds):
        for values, pull in zip(speeds, pulls, strict=True):
            with Store.open(target) as store:
                begin = clock()
                txn = store.begin()
                size = pull(txn)
                txn.commit()
                values.append(size / 1e6 / (clock() - begin))
            shutil.rmtree(target)
    return [Spread(tuple(values)) for values in speeds]


def _from_here(folder: Path, worker: int, *, packing: bool = True) -> Pull:
    """Pulls from an environment on this host, with `packing` as workers do, else entry by entry."""
    path = store_path(folder, worker)

    def pull(txn: lmdb.Transaction) -> int:
        with (
            Store.open(path, create=False) as store, store.reading(buffers=False) as view,
            leaves_of(path, view) as leaves,
        ):  # fmt: skip
            return sum(copy_bin(view, txn, bin_, leaves if packing else None) for bin_ in range(_BINS))

    return pull


def _moved_before(folder: Path, worker: int) -> Path:
    """Makes environments from others' by a pull, and returns their folder."""
    moved = folder.with_name("moved")
    with Store.open(store_path(moved, worker)) as store, store.begin() as txn:
        _from_here(folder, worker)(txn)
        write_meta(txn, Meta.new(QUERY, worker, _EPOCH - 1, GENERATION))
    return moved


def _from_there(transfer: Transfer, address: str, host: str, worker: int) -> Pull:
    ticket = Ticket(QUERY, GENERATION, host, _EPOCH, worker, tuple(range(_BINS)))

    def pull(txn: lmdb.Transaction) -> int:
        return sum(size for _, size in fetch(transfer, address, ticket, txn, expected_bytes=1 << 30))

    return pull


def _ways(folder: Path, stack: ExitStack) -> Iterator[tuple[str, str, Transfer, str]]:
    """Yields (what lies between, host, settings, address) of one way after the other."""
    plain, sealed = Transfer.new(), Transfer.new(*certificate_of("auto"))
    if not can_isolate():
        for name, transfer in (("loopback", plain), ("loopback, TLS", sealed)):
            with _handed_out(folder, _LOOPBACK, transfer) as address:
                yield name, _LOOPBACK, transfer, address
        return
    hosts = stack.enter_context(cluster(1, netem="delay 0ms"))  # cables are laid where something is said of them
    [host] = hosts.hosts
    within = ("nsenter", f"--net=/proc/{host.worker}/ns/net")
    for name, transfer in (("", plain), (", TLS", sealed)):
        with _handed_out(folder, host.address, transfer, within) as address:
            for delay in _DELAYS if transfer is plain else _DELAYS[:1]:
                hosts.disturb(delay)
                yield f"{delay or 'cable'}{name}", host.address, transfer, address


def _measured(folder: Path, scale: Scale) -> PartResult:
    shutil.rmtree(folder / "source", ignore_errors=True)
    rounds, numbers = scale.pick(_ROUNDS, 2), {"dense": _DENSE_SLOTS, "hash": _HASH_KEYS}
    source, target = folder / "source", folder / "target"
    sizes = [_fill(source, n, kind, scale.pick(many, many // 50)) for n, (kind, many) in enumerate(numbers.items())]
    ways = {"the same host": [_mb_s(target, rounds, _from_here(source, worker))[0] for worker in range(2)]}
    with ExitStack() as stack:
        for name, host, transfer, address in _ways(source, stack):
            pulls = [_from_there(transfer, address, host, worker) for worker in range(2)]
            ways[name] = [_mb_s(target, rounds, pull)[0] for pull in pulls]
    forms = _forms(source, target, rounds)
    shutil.rmtree(source)
    rows = [[name, *(found.text() for found in speeds)] for name, speeds in ways.items()]
    columns = ("from", *(f"{kind}, MB/s" for kind in numbers))
    values = f"{sizes[0] / 1e6:,.0f} MB of counts, and {sizes[1] / 1e6:,.0f} MB of hash-count's values"
    note = f"{values}, 12 bytes each without their keys; with the commit. A delay is that of each direction."
    first = list(ways.values())[1][0].values
    check = Check.of("dense state pulled from another host, MB/s", first, _BOUND_MB_S, at_most=False)
    return PartResult([Table("Bins pulled per second", columns, rows, note), forms], [check])


def _forms(source: Path, target: Path, rounds: int) -> Table:
    """Compares the forms in which hash state moves, in turns, by the CPU that they take."""
    moved = _moved_before(source, 1)
    pulls = {
        "entry by entry": _from_here(source, 1, packing=False),
        "packed on the way": _from_here(source, 1),
        "packed before": _from_here(moved, 1),
    }
    speeds = _mb_s(target, 2 * rounds, *pulls.values(), clock=time.process_time)
    shutil.rmtree(moved)
    rows = [
        [name, found.text(), f"{found.median / speeds[0].median:.1f}"]
        for name, found in zip(pulls, speeds, strict=True)
    ]
    columns = ("entries", "MB per second of CPU", "times entry by entry")
    return Table("Forms of hash state", columns, rows, "The same host, in turns; with the commit.")


PART = Part("pulls", "Pulls between hosts", 2, _measured)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
