"""Which small worlds there are: their input, their migration, their mechanisms."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from realtime.parameters import Parameters
from realtime.workload import Workload

BINS, WORKERS, ROUTERS = 4, 2, 2
GOAL = np.array([1, 0, 1, 0], np.int32)  # from 0 0 1 1: bins 0 and 3 change places
_MECHANISMS: dict[str, dict[str, Any]] = {
    "megaphone-batched": {"bins_per_pair": 1, "gap_epochs": 0, "small_bytes": 0},
    "megaphone-all-at-once": {},
    "on-demand": {"budget": 0},
    "order-unaware": {"pull_budget_bytes": 0},
    "meces": {"pull_budget_bytes": 0},
    "partial-pause": {},
}
MECHANISMS = tuple(_MECHANISMS)
# by router, the bins of its records: those that move have records of both
_BINS_OF_ROWS = ((0, 3, 0, 1), (3, 0, 3, 2))


@dataclass(frozen=True)
class Small:
    """A world.

    Attributes:
        mechanism: that migrates.
        records: number of records, even, 8 at most.
        epochs: epochs from the migration's first on in which every order is tried; before and behind them one is.
        failures: 0 or 1.
        loses: the environment of a worker may be lost with the failure.
        read: rows that a router reads at once.
    """

    mechanism: str = "megaphone-batched"
    records: int = 8
    epochs: int = 2
    failures: int = 1
    loses: bool = True
    read: int = 2

    def parameters(self) -> Parameters:
        """Returns it as the simulation's."""
        return Parameters(
            seed=0, mechanism=self.mechanism, options=_MECHANISMS[self.mechanism], durability="process",
            operator="hash", keys=64, bins=BINS, workers=WORKERS, replay_epochs=30, base_epochs=1000,
            epochs=self.epochs, records=self.records, skew=0.0, idle=0.0, slots=WORKERS, switch=0.0,
            commands=((1, "shuffle", 0),), faults=(), partitions=ROUTERS,
        )  # fmt: skip


class SmallLoad(Workload):
    """The same rows in every run; all of them are there from the beginning."""

    def __init__(self, small: Small):
        super().__init__(small.parameters())
        keys = {(self.bin_of(key), key % ROUTERS): key for key in range(63, -1, -1)}
        for place in range(small.records // ROUTERS):
            for router in range(ROUTERS):
                self._add(router, keys[_BINS_OF_ROWS[router][place], router])
        self.left = 0

    def _add(self, router: int, key: int) -> None:
        self.history[key].append(self._fold(key, 0))
        self.log[router].append((key, self.bin_of(key), {"value": 0}))
        self.places.add(router, begins=True)
