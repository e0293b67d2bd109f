"""What an epoch and the network between simulated hosts cost: measured in a real run or assumed, with the source."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from math import log2
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from harness.files import write_json
from impls.errors import UsageError

DEFAULT_COSTS = Path(__file__).with_name("costs.json")


@dataclass(frozen=True)
class Costs:
    """Times and bandwidths; what is said "per worker" holds for a worker that has a core of its own.

    Attributes:
        epoch_ms: an epoch with neither records nor moves, from the cut of its records to that of the next.
        response_ms: from an epoch's cut to its results, records and moves apart.
        between_ms: the part of an epoch that lies between two jobs; a migration's duration leaves it out at its ends.
        worker_ms: what each worker adds to an epoch, whoever it is.
        record_us: what a record costs its worker.
        slots: workers that run at the same time, 0 for all of them.
        jitter: standard deviation of the logarithm of an epoch's time.
        pull_bytes_s, pull_bin_ms: a worker's pull from another worker's state: bandwidth, and cost per bin.
        checkpoint_bytes_s, checkpoint_bin_ms: the same from the checkpoint.
        replica_bytes_s, replica_bin_ms: bringing a replica up to date, behind the results of an epoch.
        net_bytes_s, net_bin_ms, net_pull_ms: a pull from another host's server: bandwidth, cost per bin, and of the
            request; serve_bytes_s, serve_bin_ms, serve_pull_ms: what it costs that server, which has one core's worth.
        log_record_bytes: bytes that a record adds to the changelog.
        query_s, application_s: stopping and starting the query, and the whole application.
        external_record_us, external_bin_ms: with external state, what a record and the move of a bin cost instead.
        source: where the values come from, for all of them and for single ones.
    """

    epoch_ms: float
    response_ms: float
    between_ms: float
    worker_ms: float
    record_us: float
    slots: int
    jitter: float
    pull_bytes_s: float
    pull_bin_ms: float
    checkpoint_bytes_s: float
    checkpoint_bin_ms: float
    replica_bytes_s: float
    replica_bin_ms: float
    net_bytes_s: float
    net_bin_ms: float
    net_pull_ms: float
    serve_bytes_s: float
    serve_bin_ms: float
    serve_pull_ms: float
    log_record_bytes: float
    query_s: float
    application_s: float
    external_record_us: float
    external_bin_ms: float
    source: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if name != "source" and (isinstance(value, bool) or not isinstance(value, int | float) or value < 0):
                raise ValueError(f"{name} must be a number from 0, not {value!r}")

    def stop_s(self, what: str) -> float:
        """Returns how long a stop and start of the query, or of the application, takes."""
        return self.application_s if what == "application" else self.query_s

    def of(self, mechanism: str) -> "Costs":
        """Returns the costs under a mechanism: external state makes records dearer and moves no bytes."""
        if "external" not in mechanism:
            return self
        return replace(
            self, record_us=self.external_record_us, pull_bin_ms=self.external_bin_ms, pull_bytes_s=float("inf")
        )


COSTS = tuple(one.name for one in fields(Costs) if one.name != "source")


def read_costs(path: Path = DEFAULT_COSTS) -> Costs:
    """Reads costs; raises UsageError that names the file for anything that is not a full set of numbers."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        values: dict[str, Any] = data["values"]
        return Costs(**{name: values[name] for name in COSTS}, source=dict(data.get("source", {})))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"The costs in {path} cannot be read ({error}): make them anew with --calibrate.") from error


def write_costs(costs: Costs, path: Path) -> None:
    """Writes costs as `read_costs` reads them."""
    values = asdict(costs)
    source = values.pop("source")
    write_json(path, {"source": dict(source), "values": values})


_WINDOW_BYTES = 1 << 16  # what a connection sends before the first answer; twice as much after each one
_WINDOW_MOST = 2.0**40
_ROUND_TRIPS = 2  # the connection, and the request


@dataclass(frozen=True)
class ModelNetwork:
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

    network: ModelNetwork
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
