"""The fault of a disturbed run: armed in the middle of its first migration."""

import os
import signal
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from harness.experiment.description import Run
from harness.experiment.schedules import ANY_PHASE, DRIVER_POINTS, RunFault, parse_fault
from harness.lab.broker import Broker
from harness.lab.processes import RUN_FAULT, VARIABLE, Arming, disturbed, jvm_of, python_workers
from harness.run.application import Application
from harness.run.chained import second_of
from impls import catalog
from impls.driver.checkpoint import query_of
from impls.protocol.view import View


class Disturbance:
    """Made before Spark starts; watch() many times a second.

    An undisturbed run has one too, which does nothing.
    """

    def __init__(self, run: Run, folder: Path):
        self._run, self._folder, self._arming = run, folder, Arming(folder / RUN_FAULT)
        self._fault = parse_fault(run.fault) if run.fault is not None else None
        self._half: int | None = None
        self._over = disturbed(folder)
        if self._fault is not None:
            os.environ[VARIABLE] = str(self._arming.file)

    def watch(
        self,
        *,
        query: Application,
        broker: Broker,
        commanded: tuple[NDArray[np.int32], NDArray[np.int32]] | None = None,
    ) -> None:
        """Arms the fault when half of the first migration is done, and starts a broker that it has killed again.

        Args:
            query: the running query.
            broker: the run's broker.
            commanded: assignment before and after a migration that was just asked for; the first one is disturbed.
        """
        if self._fault is None:
            return
        broker.revive()
        if commanded is not None and self._half is None:
            self._half = self._half_way(*commanded)
        if self._over or self._half is None:
            return
        status = query.status()
        status = status.get("stages", {}).get(self._fault.stage, status)
        if status["migrating"] and status.get("misplaced", 0) <= self._half:
            self._over = True
            if self._run.mechanism in catalog.engines():
                self._kill(self._fault.victim, query, broker)
            else:
                self._arm(self._fault, broker)

    def _half_way(self, before: NDArray[np.int32], goal: NDArray[np.int32]) -> int:
        """Returns how many bins are misplaced in the middle of a migration; all where it is over in one epoch."""
        moves = int((before != goal).sum())
        if self._run.mechanism in catalog.engines():
            return 0
        plan = catalog.make(self._run.mechanism, **self._run.options()).plan(View.make(before, goal))
        return moves if plan.stop is not None or len(plan.pulls) == moves else moves // 2

    def _kill(self, victim: str, query: Application, broker: Broker) -> None:
        """Kills a process of another engine, which has no points, at once."""
        if victim == "broker":
            assert broker.pid is not None, "a broker of somebody else is refused beforehand"
            pid = broker.pid
            os.kill(pid, signal.SIGKILL)
        else:
            pid = query.kill_worker()
        self._arming.tell(RUN_FAULT, pid)

    def _arm(self, given: RunFault, broker: Broker) -> None:
        victim, point, stage = given
        pids = {"driver": os.getpid(), "jvm": jvm_of(os.getpid()), "broker": broker.pid}
        if point in DRIVER_POINTS:
            pids["worker"] = next(iter(python_workers(os.getpid())), None)
        self._arming.arm(
            RUN_FAULT,
            victim=victim,
            point=point,
            pids={role: pid for role, pid in pids.items() if pid is not None},
            conditions={**({} if point in ANY_PHASE else {"migrating": True}), **self._query(stage)},
        )

    def _query(self, stage: str) -> dict[str, str]:
        """Returns the condition that the fault is that of a stage, of a query of two."""
        if second_of(self._run) is None:
            return {}
        return {"query": query_of(self._folder / "checkpoint" / stage)}
