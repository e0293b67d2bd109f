"""Where faults happen to a chain of two stages: each fault is that of the other stage than the one before."""

import contextlib
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.experiment.description import Experiment
from harness.experiment.parameters import MICRO_BATCH, REAL_TIME
from harness.oracle.chain import check_chain
from harness.suites.faults.chain_query import NAME, STAGES
from harness.suites.faults.site import EpochLines, Site
from impls.driver.checkpoint import query_of
from impls.driver.control import ask
from impls.errors import UsageError

_KEYS = 500
_STILL_S = 5.0


class ChainSite(Site):
    """See Site; `checkpoint`, `state`, `migrations` and epochs are those of the stage that the fault is for.

    Who comes to a point is of that stage, too; a worker that dies at a point of the driver may be of either.
    """

    module = "harness.suites.faults.chain_query"

    def __init__(self, folder: Path, mechanism: str, *, seed: int, durability: str, mode: str = MICRO_BATCH):
        super().__init__(folder, mechanism, seed=seed, durability=durability, mode=mode)
        self._lines = {stage: EpochLines(folder / stage) for stage in STAGES}
        self._commanded = dict.fromkeys(STAGES, 0)
        self._turn_to(STAGES[0])

    def _turn_to(self, stage: str) -> None:
        self.stage, self._epochs, self.migrations = stage, self._lines[stage], self._commanded[stage]
        self.checkpoint, self.state = self.folder / "checkpoint" / stage, self.folder / "state" / stage

    def _experiment(self) -> Experiment:
        return replace(super()._experiment(), keys=_KEYS)

    @property
    def conditions(self) -> dict[str, int | bool | str]:
        """A fault is one of its stage."""
        return {"query": query_of(self.checkpoint)}

    def begin_fault(self) -> None:
        """Turns to the other stage."""
        super().begin_fault()
        self._commanded[self.stage] = self.migrations
        self._turn_to(STAGES[1 - STAGES.index(self.stage)])

    def applied_by(self, stage: str) -> int:
        """Returns the records that a stage has applied since the beginning."""
        return sum(line["records"] for line in self._lines[stage].read())

    def settled(self) -> bool:
        """Returns whether both stages answer and every command given has reached its goal."""
        with contextlib.suppress(UsageError):
            found = [ask(self.folder / "checkpoint" / stage, {"do": "status"}) for stage in STAGES]
            return not any(one["migrating"] or one["misplaced"] or one["queued"] for one in found)
        return False

    def _drained(self, sent: int) -> Callable[[], bool]:
        """Returns what says that the first stage has all records, and that nothing comes to the second one any more."""
        seen: list[Any] = [[], 0.0]

        def drained() -> bool:
            applied = [self.applied_by(stage) for stage in STAGES]
            if applied != seen[0]:
                seen[:] = [applied, time.monotonic()]
            still = time.monotonic() - seen[1] >= _STILL_S
            return still and (applied[0] >= sent or self._mode == REAL_TIME) and self.settled()

        return drained

    def _check(self) -> dict[str, Any]:
        """Returns the oracle's answer."""
        return check_chain(self.folder, self.broker.bootstrap, ("in", f"{NAME}.{STAGES[0]}", "out"), STAGES)
