"""Workers on several hosts of this machine: each host has an address and a state folder of its own, and its server."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from durable import Workers

from impls.protocol.order import EpochOrder
from impls.protocol.report import Report
from impls.protocol.seats import Seating
from impls.store.environment import store_path
from impls.transfer.settings import Transfer
from impls.worker.query import QuerySpec, Task

__all__ = ["A", "B", "HostWorkers", "until"]

A, B = "127.0.0.2", "127.0.0.3"


def until(what: str, found: Callable[[], Any], deadline_s: float = 30.0) -> Any:
    """Returns what `found` returns once that is true; fails when the deadline passes."""
    end = time.monotonic() + deadline_s
    while not (value := found()):
        assert time.monotonic() < end, f"waited {deadline_s} s for {what}"
        time.sleep(0.02)
    return value


@dataclass
class HostWorkers(Workers):
    """Workers of `tests/durable.py` that run on hosts; `at` says where each runs from now on."""

    at: dict[int, str] = field(default_factory=lambda: {0: A, 1: B, 2: B})
    transfer: Transfer | None = field(default_factory=Transfer.new)
    homes: dict[int, str] = field(default_factory=dict)
    servers: dict[str, str] = field(default_factory=dict)

    def environment(self, worker: int) -> Path:
        return store_path(self.folder / "state" / self.at[worker], worker)

    @property
    def spec(self) -> QuerySpec:
        return replace(super().spec, transfer=self.transfer)

    def order(self, *args: Any, **more: Any) -> EpochOrder:
        homes, servers = tuple(self.homes.items()), tuple(self.servers.items())
        seating = Seating(homes=more.pop("homes", homes), servers=more.pop("servers", servers))
        return super().order(*args, seating=seating, **more)

    def task(self, order: EpochOrder, worker: int, attempt: int = 0) -> Task:
        return Task(self.spec, order, worker, attempt, self.at[worker])

    def epoch(self, *args: Any, **more: Any) -> list[Report]:
        reports = super().epoch(*args, **more)
        for report in reports:
            self.homes[report.worker] = report.host
            if report.server:
                self.servers[report.host] = report.server
        return reports

    def until_served(self, *hosts: str) -> None:
        """Runs epochs until each host says where it hands out bins."""
        until("servers", lambda: self.epoch() and set(hosts or self.at.values()) <= set(self.servers))
