"""Spark's part, simulated: the tasks of one batch, the channels between them, and who of them may go on."""

from collections import deque
from collections.abc import Callable
from typing import Any

from router import Router

from impls.protocol.session import Hello
from impls.realtime.blobs import decode
from impls.realtime.worker import RealTimeWorker
from impls.worker.query import QuerySpec
from realtime.parameters import Parameters
from realtime.workload import Workload

_RECORDS = 12  # of one reading at most

Name = tuple[Any, int]  # role, index


Start = tuple[int, int, list[int], int]  # number of the session, Spark's batch, offsets, slots


class Peer:
    """A task as the driver sees it: what it says comes in order, and behind the last word that it is gone.

    Attributes:
        alive: it goes on.
        inbox, outbox: messages on their way to it and from it.
        told_gone: the driver knows that it is gone.
    """

    def __init__(self, hello: Hello):
        self.hello, self.alive, self.told_gone = hello, True, False
        self.inbox: deque[Any] = deque()
        self.outbox: deque[Any] = deque([hello])


class Session:
    """The tasks of one batch: routers that read partitions from `positions` on, workers, and channels.

    A position is the place of a row in the log of its partition.

    Attributes:
        awake, idle: of each worker, whether it has more to do, and how many steps it has done nothing in.
        ending: routers read nothing more, and tasks end.
        dying: steps until all tasks are killed, as one has died; None while none has.
    """

    def __init__(self, p: Parameters, load: Workload, spec: QuerySpec, start: Start):
        run, batch, positions, slots = start
        self._load, self.batch, self.positions = load, batch, list(positions)
        self.peers: dict[Name, Peer] = {
            (role, index): Peer(Hello(role, index, of, f"run-{run}", batch, 0))
            for role, of in (("router", p.partitions), ("worker", slots))
            for index in range(of)
        }
        self.routers = [Router(index, slots) for index in range(p.partitions)]
        self._routed = [False] * p.partitions
        self.workers = [
            RealTimeWorker(spec, w, batch=batch, say=self.peers["worker", w].outbox.append) for w in range(slots)
        ]
        self.awake, self.idle = [False] * slots, [0] * slots
        self.channels: dict[tuple[int, int], deque[bytes]] = {
            (f, s): deque() for f in range(p.partitions) for s in range(slots)
        }
        self.ending = False
        self.dying: int | None = None

    def progress(self, w: int) -> Any:
        """Returns what changes with every step of a worker that does something."""
        worker, task, env = self.workers[w], self.workers[w].worker.task, self.workers[w].worker.environment
        waits = worker.waiting, worker.spare, 0 if task is None else len(task.set_aside)
        return waits, worker.worker.in_epoch, None if env is None else (env.ended_epoch, env.state.number)

    def alive(self, role: str) -> list[int]:
        """Returns the tasks of a role that go on."""
        return [index for (kind, index), peer in self.peers.items() if kind == role and peer.alive]

    @property
    def over(self) -> bool:
        """Whether all tasks have ended well."""
        return self.dying is None and not any(peer.alive for peer in self.peers.values())

    def actions(
        self, tell: Callable[[Peer], None], step: Callable[[int], None], route: Callable[[int], None]
    ) -> list[Callable[[], None]]:
        """Returns what can happen next."""
        peers, found = self.peers.items(), []
        found += [lambda p=peer: tell(p) for _, peer in peers if peer.outbox or not (peer.alive or peer.told_gone)]
        found += [lambda n=name: self.hear(n) for name, peer in peers if peer.inbox and peer.alive]
        found += [
            lambda n=name: self.deliver(n) for name, queue in self.channels.items() if queue and self._takes(name)
        ]
        found += [lambda w=w: step(w) for w in self.alive("worker") if self.awake[w]]
        found += [lambda f=f: route(f) for f in self.alive("router") if self.can_route(f)]
        if self.ending:
            found += [lambda f=f: self.end(("router", f)) for f in self.alive("router") if self._between_records(f)]
            found += [lambda w=w: self.end(("worker", w)) for w in self.alive("worker") if self._has_all(w)]
        return found

    def _takes(self, name: tuple[int, int]) -> bool:
        return self.peers["worker", name[1]].alive

    def _has_all(self, w: int) -> bool:
        """Whether a worker may end: its input has ended, and it waits for nothing."""
        worker = self.workers[w]
        if self.alive("router") or any(self.channels[f, w] for f in range(len(self.routers))):
            return False
        return not self.awake[w] and worker.spare and not worker.waiting

    def hear(self, name: Name) -> None:
        """A task takes a message of the driver."""
        message, (role, index) = self.peers[name].inbox.popleft(), name
        if role == "worker":
            self.workers[index].hear(message)
            self.awake[index] = True
        else:
            self.peers[name].outbox.append(self.routers[index].switch(message))
            self._routed[index] = True

    def deliver(self, name: tuple[int, int]) -> None:
        """A worker's task takes a blob."""
        self.workers[name[1]].take([decode(self.channels[name].popleft(), self._load.schema)])
        self.awake[name[1]] = True

    def can_route(self, f: int) -> bool:
        """Whether a router has records to route; at the end it has the rest of the one that it has begun."""
        goes_on = not self.ending or not self._between_records(f)
        goes_on = goes_on and not self.routers[f].is_last
        return self._routed[f] and goes_on and self.positions[f] < len(self._load.log[f])

    def _between_records(self, f: int) -> bool:
        return self._load.places.begins(f, self.positions[f])

    def read(self, f: int, number: int) -> list[tuple[int, bytes]]:
        """A router reads records; returns their blobs."""
        low = self.positions[f]
        self.positions[f] = min(len(self._load.log[f]), low + 1 + number % _RECORDS)
        return self.routers[f].pack([self._load.batch(f, low, self.positions[f])])

    def send(self, f: int, blobs: list[tuple[int, bytes]]) -> None:
        """A router's blobs are on their way."""
        for slot, blob in blobs:
            self.channels[f, slot].append(blob)

    def end(self, name: Name) -> None:
        """A task ends, or dies."""
        peer = self.peers[name]
        peer.alive = False
        peer.inbox.clear()
        if name[0] == "worker":
            self.workers[name[1]].close()

    def close(self) -> None:
        """Every task is dead."""
        for name in self.peers:
            self.end(name)

    def drained(self) -> bool:
        """Whether every record is read and applied, or queued."""
        read = all(at == len(log) for at, log in zip(self.positions, self._load.log, strict=True))
        return read and not any(self.channels.values()) and not any(w.waiting for w in self.workers)
