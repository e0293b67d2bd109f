"""Where workers sit on a cluster: seats on hosts, and which worker takes which. Pure.

A *seat* is a partition of the anchor (see `impls.spark.readiness`), whose tasks Spark runs on one executor. A worker
that owns state keeps to the host where its environment is, its *home*, as long as that host has a seat for it.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from impls.errors import UsageError


@dataclass(frozen=True)  # without slots, as EpochOrder
class Seating:
    """Where the workers of an epoch sit on a cluster; on one host all of it is empty.

    Attributes:
        seats: the worker of each partition of the job, -1 for none; empty where a partition is a worker.
        homes: (worker, host) of the environments, each where its worker ran last.
        hosts: those for workers that own nothing; all when empty.
        servers: (host, address) of the processes that hand out bins between hosts.
    """

    seats: tuple[int, ...] = ()
    homes: tuple[tuple[int, str], ...] = ()
    hosts: tuple[str, ...] = ()
    servers: tuple[tuple[str, str], ...] = ()


ONE_HOST = Seating()
NO_SERVERS: Mapping[str, str] = MappingProxyType({})
"""Those of one host, see `impls.protocol.order.Executor`."""


def seat_workers(
    seats: Sequence[str],
    workers: int,
    homes: Mapping[int, str],
    *,
    owners: Collection[int] = (),
    before: Mapping[int, int] | None = None,
    allowed: Collection[str] = (),
) -> tuple[int, ...]:
    """Returns the seat of each worker 0..workers-1, so that as few owners as possible leave their home.

    Args:
        seats: host of each seat; at least as many as workers.
        workers: number of workers.
        homes: host of a worker's environment.
        owners: workers that hold state; the others sit wherever a seat is left.
        before: the seat of a worker in the last epoch, kept where that is possible.
        allowed: hosts for workers that have no home or must leave it; all hosts when empty, or when they have too few
            seats left.

    Raises:
        ValueError: there are fewer seats than workers.
    """
    if len(seats) < workers:
        raise ValueError(f"{workers} workers need as many seats, not {len(seats)}")
    left = dict(enumerate(seats))
    taken: dict[int, int] = {}
    owning, last = set(owners), before or {}
    staying = [w for w in range(workers) if w in homes and (w in owning or not allowed or homes[w] in allowed)]
    for worker in sorted(staying, key=lambda w: (w not in owning, left.get(last.get(w, -1)) != homes[w], w)):
        if (seat := _seat_on(homes[worker], left, last.get(worker))) is not None:
            taken[worker] = seat
            del left[seat]
    for worker in sorted(set(range(workers)) - set(taken), key=lambda w: (w not in owning, w)):
        seat = _emptiest(left, seats, allowed)
        taken[worker] = seat
        del left[seat]
    return tuple(taken[worker] for worker in range(workers))


def rounds_needed(
    seats: Sequence[str], rounds: int, workers: int, homes: Mapping[int, str], owners: Collection[int]
) -> int:
    """Returns in how many rounds of slots the seats are to be made, so that no owner leaves a host that has slots.

    A host that joins takes nobody from a host where more workers sit than it has slots: they would have to be restored.

    Args:
        seats: host of each seat there is.
        rounds: in how many rounds of slots these were made.
        workers: number of workers.
        homes: host of a worker's environment.
        owners: workers that hold state.
    """
    slots = {host: max(1, number // rounds) for host, number in Counter(seats).items()}
    sitting = Counter(homes[worker] for worker in owners if homes.get(worker) in slots)
    least = -(-workers // max(1, len(seats) // rounds))
    return max([least, *(-(-number // slots[host]) for host, number in sitting.items())])


def _seat_on(host: str, left: Mapping[int, str], last: int | None) -> int | None:
    """Returns a free seat on a host, the last one if that is free; None when there is none."""
    if last is not None and left.get(last) == host:
        return last
    return min((seat for seat, at in left.items() if at == host), default=None)


def _emptiest(left: Mapping[int, str], seats: Sequence[str], allowed: Collection[str]) -> int:
    """Returns a free seat on the host that has the most free ones, if it can be on an allowed host."""
    free = {seat: host for seat, host in left.items() if not allowed or host in allowed} or left
    number, all_of = Counter(free.values()), Counter(seats)
    return min(free, key=lambda seat: (-number[free[seat]], all_of[free[seat]] - number[free[seat]], seat))


def workers_of_seats(seat_of: Sequence[int], seats: int) -> tuple[int, ...]:
    """Returns the worker of each seat, -1 for an empty one."""
    out = [-1] * seats
    for worker, seat in enumerate(seat_of):
        out[seat] = worker
    return tuple(out)


def numbers_on(
    workers: int, hosts: Collection[str], homes: Mapping[int, str], owners: Iterable[int], known: Collection[str]
) -> tuple[int, ...]:
    """Returns the numbers of the workers that are to own bins when a query is to run on some hosts only, ascending.

    Workers that own state on these hosts go on, on each host as many as its even share at most; others get the lowest
    numbers of workers that own nothing. So the workers of a host that was lost go to the one that came in its place.

    Args:
        workers: how many.
        hosts: the hosts.
        homes: host of a worker's environment.
        owners: workers that own bins now.
        known: hosts of the cluster.

    Raises:
        UsageError: a host is unknown, none is named, or the query runs on one host only.
    """
    if not known:
        raise UsageError("This query runs on one host: only a query on a cluster can be given hosts.")
    strange = sorted(set(hosts) - set(known))
    if strange or not hosts:
        named = f"has no host {strange[0]}" if strange else "is to run the query on no host at all"
        raise UsageError(f"The cluster {named}: its hosts are {', '.join(sorted(set(known)))}.")
    owning, share = sorted(set(owners)), -(-workers // len(set(hosts)))
    at = {host: [worker for worker in owning if homes.get(worker) == host][:share] for host in hosts}
    staying = sorted(worker for there in at.values() for worker in there)[:workers]
    free = (number for number in range(len(owning) + workers) if number not in owning)
    return tuple(sorted([*staying, *(next(free) for _ in range(workers - len(staying)))]))


def renumbered(assignment: NDArray[np.int32], numbers: Sequence[int]) -> NDArray[np.int32]:
    """Returns an assignment, shape (B,), in which the worker numbers[i] is called i, and others follow from there."""
    others = sorted(set(assignment.tolist()) - set(numbers))
    names = {number: name for name, number in enumerate([*numbers, *others])}
    return np.array([names[worker] for worker in assignment.tolist()], np.int32)


def hosts_of(homes: Mapping[int, str], hosts: Collection[str]) -> dict[str, dict[str, list[int]]]:
    """Returns the workers of each host that has a seat or had a worker; nothing where there is only one host."""
    known = sorted({*hosts, *homes.values()})
    return {"hosts": {host: sorted(w for w, at in homes.items() if at == host) for host in known}} if known else {}
