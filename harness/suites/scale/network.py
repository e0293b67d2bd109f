"""The network between simulated hosts: what pulls take that cross it, beside those within a host."""

from dataclasses import dataclass
from math import log2
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from harness.suites.scale.costs import Costs

__all__ = ["Crossing", "Network"]

_WINDOW_BYTES = 1 << 16  # what a connection sends before the first answer; twice as much after each one
_WINDOW_MOST = 2.0**40
_ROUND_TRIPS = 2  # the connection, and the request


@dataclass(frozen=True)
class Network:
    """Hosts, with equally many workers each, and what is between them.

    Attributes:
        homes: host of each worker, int64, shape (workers,).
        bytes_s: what a host sends at most, and receives at most, per second.
        delay_ms: of each packet.
    """

    homes: NDArray[np.int64]
    bytes_s: float = float("inf")
    delay_ms: float = 0.0

    @classmethod
    def of(
        cls, hosts: int, workers: int, *, bytes_s: float = float("inf"), delay_ms: float = 0.0, seed: int = 1
    ) -> Self:
        """Returns a network with workers dealt out in rounds, each round in an order of its own, as seats are."""
        random = np.random.default_rng(seed)
        rounds = [random.permutation(hosts) for _ in range(-(-workers // hosts))]
        return cls(np.concatenate(rounds)[:workers].astype(np.int64), bytes_s, delay_ms)

    @property
    def hosts(self) -> int:
        """Number of hosts that have workers."""
        return int(self.homes.max()) + 1

    def receive_ms(self, size: NDArray[Any]) -> NDArray[np.float64]:
        """Returns for each worker how long its host takes to receive what its workers read, `size` bytes each.

        Both are of shape (workers,); a worker that reads nothing waits for nothing.
        """
        hosts = self.homes[: len(size)]
        each = np.bincount(hosts, weights=size, minlength=self.hosts) / self.bytes_s * 1e3
        return np.where(size > 0, each[hosts], 0.0)

    def waits_ms(self, size: NDArray[Any]) -> NDArray[np.float64]:
        """Returns how long each pull of so many bytes waits for the other side, on a network with a delay."""
        if not self.delay_ms:
            return np.zeros(len(size))
        full = log2(1 + min(self.bytes_s * 2 * self.delay_ms / 1e3, _WINDOW_MOST) / _WINDOW_BYTES)
        rounds = _ROUND_TRIPS + np.minimum(np.log2(1 + size / _WINDOW_BYTES), full)
        return 2 * self.delay_ms * rounds


@dataclass(frozen=True)
class Crossing:
    """Bins that are pulled from other hosts in one epoch.

    Attributes:
        network: between them.
        costs: of pulls that cross it.
        targets, sources: workers, int, shape (n,). sizes: bytes, shape (n,).
    """

    network: Network
    costs: Costs
    targets: NDArray[np.int32]
    sources: NDArray[np.int32]
    sizes: NDArray[np.float64]

    def times_ms(self, workers: int) -> NDArray[np.float64]:
        """Returns each worker's time for its pulls, shape (workers,).

        A worker asks one source after the other. A source's host hands out all that it is asked for with one process,
        and neither host sends or receives more than the network lets it.
        """
        pairs, pair = np.unique(self.targets.astype(np.int64) * workers + self.sources, return_inverse=True)
        target, source = pairs // workers, pairs % workers
        bins, size = np.bincount(pair), np.bincount(pair, weights=self.sizes)
        own = self._own_ms(bins, size)
        spent = np.bincount(target, weights=own, minlength=workers)
        handed = self._handed_ms(source, bins, size)
        np.maximum.at(spent, target, handed[self.network.homes[source]])
        received = np.bincount(target, weights=size, minlength=workers)
        return np.maximum(spent, self.network.receive_ms(received))

    def _own_ms(self, bins: NDArray[np.int64], size: NDArray[Any]) -> NDArray[np.float64]:
        """Returns what each pull takes by itself."""
        costs = self.costs
        own = costs.net_pull_ms + bins * costs.net_bin_ms + size / costs.net_bytes_s * 1e3
        return own + self.network.waits_ms(size)

    def _handed_ms(self, source: NDArray[np.int64], bins: NDArray[np.int64], size: NDArray[Any]) -> NDArray[np.float64]:
        """Returns how long each host takes to hand out what it is asked for."""
        costs, hosts = self.costs, self.network.homes[source]
        serving = costs.serve_pull_ms + bins * costs.serve_bin_ms + size / costs.serve_bytes_s * 1e3
        sent = np.bincount(hosts, weights=size, minlength=self.network.hosts) / self.network.bytes_s * 1e3
        return np.maximum(np.bincount(hosts, weights=serving, minlength=self.network.hosts), sent)
