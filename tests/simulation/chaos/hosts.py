"""The hosts of a simulated cluster: which of them Spark reaches, the seats there, and where its tasks run."""

from collections import Counter
from random import Random

from chaos.parameters import Parameters
from impls.protocol.order import EpochOrder


class Hosts:
    """Hosts that come and go.

    Attributes:
        names: of all that there ever were; the first one is there from the beginning.
        back: host that is away -> the epoch in which it comes back.
        lives: host -> executors that it has had before.
        moved: (epoch, worker) where an attempt ran on another host than the worker's home.
    """

    def __init__(self, parameters: Parameters):
        self._p, self._random = parameters, Random(parameters.seed + 8)
        self.names = [f"10.0.0.{number}" for number in range(1, parameters.hosts + 1)]
        self.back: dict[str, int] = {}
        self.lives: Counter[str] = Counter()
        self.moved: set[tuple[int, int]] = set()

    def join(self) -> None:
        """Adds a host."""
        self.names.append(f"10.0.0.{len(self.names) + 1}")

    @property
    def reached(self) -> list[str]:
        """Hosts that the driver reaches."""
        return [name for name in self.names if name not in self.back]

    @property
    def executors(self) -> tuple[tuple[str, int], ...]:
        """The executors that are registered, as (host, how many were there before)."""
        return tuple((name, self.lives[name]) for name in self.reached)

    @property
    def slots(self) -> int:
        """How many tasks run at once."""
        return self._p.cores * len(self.reached)

    def anchor(self, rounds: int) -> tuple[str, ...]:
        """Returns the host of each seat of a new anchor: a seat per core and round, now and then one elsewhere."""
        seats = self.reached * (self._p.cores * rounds)
        self._random.shuffle(seats)
        if self._random.random() < 0.2:
            seats[0] = self._random.choice(self.reached)
        return tuple(seats)

    def place(self, order: EpochOrder, worker: int, seat: str) -> str:
        """Returns where Spark runs a task: at its seat, elsewhere when that is lost or, now and then, without need."""
        host = seat if seat in self.reached and self._random.random() >= self._p.wander else ""
        host = host or self._random.choice(self.reached)
        if host != dict(order.seating.homes).get(worker, host):
            self.moved.add((order.written.epoch, worker))
        return host
