"""What a pull from another host's server costs the puller and the server, measured here between two addresses."""

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil
from numpy.typing import NDArray
from scipy.optimize import nnls

from impls.errors import StateError
from impls.store.environment import Meta, Store, store_path, write_meta
from impls.store.state import BinState
from impls.transfer.client import fetch, offer
from impls.transfer.process import Places
from impls.transfer.settings import Transfer
from impls.transfer.ticket import Ticket

_MEMORY = Path("/dev/shm")
_HOST = "127.0.0.2"
_QUERY, _GENERATION, _EPOCH = "pulls", 1, 1
_BIN_SLOTS = (1, 50_000, 500_000)  # 4 kB, 0.4 MB and 4 MB of dense counts
_BINS = {1: (1, 16, 64), 50_000: (1, 16, 64), 500_000: (1, 8)}
_ROUNDS = 7
_DEADLINE_S = 20.0
_SMALL = 0.02  # of the longest: CPU is counted in hundredths of a second


@dataclass(frozen=True)
class PullCosts:
    """Costs in ms per pull and per bin, and in bytes/s: of the puller by its clock, of the server by its CPU."""

    net_pull_ms: float
    net_bin_ms: float
    net_bytes_s: float
    serve_pull_ms: float
    serve_bin_ms: float
    serve_bytes_s: float


def measure_pulls(rounds: int = _ROUNDS) -> PullCosts:
    """Pulls dense bins of several sizes and numbers, one ticket each, and fits the costs to the rounds' least times.

    What others do on the machine can only add to a time.

    Raises:
        StateError: the server does not come up.
    """
    folder = Path(tempfile.mkdtemp(prefix="pulls-", dir=_MEMORY if _MEMORY.is_dir() else None))
    try:
        workers = {slots: number for number, slots in enumerate(_BIN_SLOTS)}
        for slots, worker in workers.items():
            _fill(folder / "source", worker, slots, max(_BINS[slots]))
        with _served(folder / "source") as (transfer, address, server):
            rows = [
                _pull(folder / "target", transfer, address, server, workers[slots], bins, rounds)
                for slots, numbers in _BINS.items()
                for bins in numbers
            ]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    found = np.array(rows)
    own, serving = _parts(found[:, :2], found[:, 2]), _parts(found[:, :2], found[:, 3])
    return PullCosts(*own, *serving)


def _fill(folder: Path, worker: int, slots: int, bins: int) -> None:
    with Store.open(store_path(folder, worker)) as store, store.begin() as txn:
        state = BinState(txn, bins)
        for bin_ in range(bins):
            state.create_dense(bin_, slots)
        state.write_sizes()
        write_meta(txn, Meta.new(_QUERY, worker, _EPOCH, _GENERATION))


@contextmanager
def _served(folder: Path) -> Iterator[tuple[Transfer, str, psutil.Process]]:
    """Yields settings, address and process of a server, which is ended behind it."""
    transfer, end = Transfer.new(), time.monotonic() + _DEADLINE_S
    how = {"query": _QUERY, "generation": _GENERATION, "host": _HOST, "state_dir": str(folder)}
    while not (address := offer(transfer, **how)):  # type: ignore[arg-type]
        if time.monotonic() > end:
            raise StateError(f"No server of bins came up at {_HOST} within {_DEADLINE_S:.0f} s.")
        time.sleep(0.05)
    server = psutil.Process(int(Places(folder, _QUERY, _GENERATION).read()["pid"]))
    try:
        yield transfer, address, server
    finally:
        server.kill()


def _pull(  # noqa: PLR0917
    folder: Path, transfer: Transfer, address: str, server: psutil.Process, worker: int, bins: int, rounds: int
) -> tuple[float, float, float, float]:
    """Returns bins, bytes, the least of the puller's ms, and the server's ms of CPU of one pull; the first is extra."""
    took: list[float] = []
    size, before = 0, 0.0
    for number in range(rounds + 1):
        ticket = Ticket(_QUERY, _GENERATION, _HOST, _EPOCH, worker, tuple(range(bins)))
        with Store.open(folder) as store, store.begin() as txn:
            begin = time.perf_counter()
            size = sum(one for _, one in fetch(transfer, address, ticket, txn, expected_bytes=1 << 30))
            took.append((time.perf_counter() - begin) * 1e3)
        if number == 0:
            before = _cpu_ms(server)
    shutil.rmtree(folder)
    return float(bins), float(size), min(took[1:]), (_cpu_ms(server) - before) / rounds


def _cpu_ms(process: psutil.Process) -> float:
    used = process.cpu_times()
    return float(used.user + used.system) * 1e3


def _parts(rows: NDArray[np.float64], ms: NDArray[np.float64]) -> tuple[float, float, float]:
    """Returns ms per pull, ms per bin and bytes/s, by least squares of relative errors; small times weigh less."""
    weight = 1 / np.maximum(ms, _SMALL * ms.max())
    columns = np.column_stack([np.ones(len(rows)), rows]) * weight[:, None]
    scale = columns.max(axis=0)
    pull_ms, bin_ms, byte_ms = nnls(columns / scale, ms * weight)[0] / scale
    return float(pull_ms), float(bin_ms), 1e3 / float(byte_ms) if byte_ms else float("inf")
