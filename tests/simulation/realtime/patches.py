"""What is put in place of time, of random identities, and around the places where tasks and driver may die."""

import contextlib
import errno
import os
import uuid
from collections.abc import Callable, Iterator
from random import Random
from types import SimpleNamespace
from typing import Any
from unittest import mock

from chaos.patches import clocked, large_states, packing, small_maps

from impls import faults
from impls.driver import checkpoint
from impls.driver.journal import Journal
from impls.durability import frame
from impls.durability.files import Files
from impls.errors import CorruptStateError
from impls.protocol import changing, events
from impls.realtime import blobs
from impls.store import environment
from impls.store import environment as stores
from impls.worker import commit
from impls.worker.environment import Environment
from realtime.parameters import Parameters

DAMAGE = "planted damage"
Point = Callable[[str], Any]


class Clock:
    """A time that goes on by 0.1 ms whenever somebody looks."""

    def __init__(self) -> None:
        self._now = 0

    def time_ns(self) -> int:
        """Returns the wall clock, ns."""
        self._now += 100_000
        return self._now

    def perf_counter(self) -> float:
        """Returns seconds."""
        return self.time_ns() / 1e9

    monotonic = perf_counter

    def sleep(self, seconds: float) -> None:
        """Passes time."""
        self._now += int(seconds * 1e9)


@contextlib.contextmanager
def simulated(p: Parameters, point: Point, clock: Any = None) -> Iterator[None]:
    """Makes the runtime see a clock and identities from the seed, and come to `point` where it may die."""
    random = Random(p.seed + 4)
    identities = SimpleNamespace(uuid4=lambda: uuid.UUID(int=random.getrandbits(128), version=4))
    with contextlib.ExitStack() as stack:
        stack.enter_context(clocked(clock or Clock()))
        for module in (checkpoint, environment, events, stores):
            stack.enter_context(mock.patch.object(module, "uuid", identities))
        stack.enter_context(packing(p.seed))
        stack.enter_context(small_maps(p.seed))
        stack.enter_context(large_states(p.seed))
        stack.enter_context(mock.patch.object(checkpoint, "BASE_EPOCHS", p.base_epochs))
        stack.enter_context(mock.patch.object(changing, "PROOF_EPOCHS", p.proof_epochs))
        stack.enter_context(mock.patch.object(blobs, "_RECORDS", p.commit))
        stack.enter_context(mock.patch.object(commit, "_DROP_ITEMS", 1 + p.seed % 3))
        stack.enter_context(mock.patch.object(frame, "_write", _torn(frame._write, point)))
        snapshot = _damaged_snapshot(commit.write_snapshot, point)
        stack.enter_context(mock.patch.object(commit, "write_snapshot", snapshot))
        for name in ("_read_latencies", "begin"):
            found = _damaged(getattr(Environment, name), point)
            stack.enter_context(mock.patch.object(Environment, name, found))
        stack.enter_context(mock.patch.object(Files, "write", _around(Files.write, point, "write")))
        stack.enter_context(mock.patch.object(Journal, "append", _around(Journal.append, point, "append")))
        faults.install(lambda name, _context: point(name))
        try:
            yield
        finally:
            faults.install(None)


def _around(plain: Any, point: Point, name: str) -> Any:
    def called(self: Any, *given: Any) -> None:
        point(f"before-{name}")
        plain(self, *given)
        point(f"after-{name}")

    return called


def _damaged(plain: Any, point: Point) -> Any:
    """An environment turns out to be damaged when it is opened, or when a commit begins."""

    def called(self: Any, *given: Any) -> Any:
        if self.task.spec.files is not None and point("damage"):
            raise CorruptStateError(DAMAGE)
        return plain(self, *given)

    return called


def _damaged_snapshot(plain: Any, point: Point) -> Any:
    """The same, behind the commit that ends an epoch."""

    def called(*given: Any) -> None:
        if point("damage"):
            raise CorruptStateError(DAMAGE)
        plain(*given)

    return called


def _torn(plain: Any, point: Point) -> Any:
    """A frame is written in part when its process dies, or the disk is full."""

    def write(fd: int, raw: bytes) -> None:
        part = raw[: len(raw) * point("part") // 100]
        try:
            point("tear")
            full = point("full")
        except BaseException:
            os.write(fd, part)
            raise
        if full:
            os.write(fd, part)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        plain(fd, raw)
        point("logged")

    return write
