"""The part of the executor on a cluster that Spark does not do: seats, and who sits where, with the real rules."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from chaos.cluster import Cluster
from chaos.hosts import Hosts
from chaos.violation import require
from chaos.workload import Batch
from impls.protocol import seats
from impls.protocol.order import Answers, EpochOrder
from impls.worker.query import QuerySpec


@dataclass
class SeatedSimulation:
    """Does what `impls.spark.executor.SeatedExecutor` does, with simulated hosts in Spark's place."""

    cluster: Cluster
    spec: QuerySpec
    on: Hosts
    _anchor: tuple[str, ...] = ()
    _rounds: int = 1
    _executors: tuple[tuple[str, int], ...] = ()
    _seat_of: tuple[int, ...] = ()
    _servers: dict[str, str] = field(default_factory=dict)

    @property
    def servers(self) -> Mapping[str, str]:
        """By host with a seat the address at which it hands out bins."""
        return {host: self._servers.get(host, "") for host in sorted(self._anchor)}

    def run(self, order: EpochOrder, batch: Batch) -> Answers:
        """Runs an epoch with each worker at its seat."""
        workers, clock = order.written.workers, self.cluster.clock
        begin = clock.perf_counter()
        owners = set(range(workers)) - set(order.fresh)
        homes, before = dict(order.seating.homes), dict(enumerate(self._seat_of))
        if self.on.executors != self._executors:
            self._make(-(-workers // self.on.slots))
            self._executors = self.on.executors
        needed = seats.rounds_needed(self._anchor, self._rounds, workers, homes, owners)
        if needed > self._rounds or (needed < self._rounds and not order.moving):
            self._make(needed)
        self._seat_of = seats.seat_workers(
            self._anchor, workers, homes, owners=owners, before=before, allowed=order.seating.hosts
        )
        taken = seats.workers_of_seats(self._seat_of, len(self._anchor))
        check_seats(self._anchor, taken, owners, homes, workers)
        seating = replace(order.seating, seats=taken, servers=tuple(sorted(self._servers.items())))
        order = replace(order, seating=seating)
        rows = self.cluster.run(self.spec, order, batch, self._anchor, self._seat_of)
        self._servers |= {report.host: report.server for report, _ in rows if report.server}
        return Answers.of(rows, build_ms=1e-3, job_ms=(clock.next_look() - begin) * 1e3)

    def _make(self, rounds: int) -> None:
        self._anchor, self._rounds = self.on.anchor(rounds), rounds


def check_seats(
    anchor: tuple[str, ...], taken: tuple[int, ...], owners: set[int], homes: dict[int, str], workers: int
) -> None:
    """Requires a seat for each worker, and that only those owners leave their home for which it has none."""
    sitting = Counter(worker for worker in taken if worker >= 0)
    require(sitting == Counter(range(workers)), "seats", f"the workers sit {dict(sitting)} times each")
    at = {worker: anchor[seat] for seat, worker in enumerate(taken) if worker >= 0}
    for host in sorted(set(homes.values())):
        mine = [worker for worker in sorted(owners) if homes.get(worker) == host]
        left, room = sum(at[worker] != host for worker in mine), anchor.count(host)
        most = max(0, len(mine) - room)
        require(left == most, "seats", f"{left} of {len(mine)} workers leave {host}, which has {room} seats")
