"""A NEXMark query of two stages under test: its chain is started, commanded and ended as one query.

The first stage's epochs, events and latencies are the run's, as the input is what it applies. Those of the second one
are in a folder of its own in the run's.
"""

import uuid
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import DataFrame

from harness.experiment.description import Run
from harness.experiment.schedules import FIRST, SECOND, STAGES
from harness.files import write_text
from harness.run.recorder import Recorder
from impls import catalog
from impls.api import stream
from impls.chains import Chain, chain
from impls.closing import close_all, ended_on_error
from impls.driver.handle import StreamHandle
from impls.errors import UsageError
from impls.operators import Operator
from impls.operators.nexmark import QUERIES, SecondStage
from impls.spark.columns import KEY, TIME
from impls.stages import Stage
from impls.worker.output import Output


def second_of(run: Run) -> type[SecondStage] | None:
    """Returns the second stage of a run's query; None of a query of one stage, and where another engine answers."""
    if run.experiment.workload != "nexmark" or run.mechanism in catalog.baselines():
        return None
    return QUERIES[run.experiment.query].second


class ChainedQuery:
    """Offers what the harness needs of a StreamHandle; `with` stops both stages.

    A command is one to both of them at the same time. Where a run ended between the two, the second stage gets its own
    when the run goes on.
    """

    def __init__(self, running: Chain, *, autoscaled: bool = False):
        self._chain = running
        self._first, self._second = (running.stages[name] for name in STAGES)
        if not (autoscaled or np.array_equal(self._first.goal, self._second.goal)):  # it ended between two commands
            self._second.rebalance(self._first.goal, label="as the first stage")

    def ended(self, timeout_s: float) -> bool:
        """Waits until both stages have ended and returns whether they have."""
        return self._chain.ended(timeout_s)

    def await_end(self, timeout_s: float) -> bool:
        """As `ended`; raises what a stage failed with."""
        return self._chain.await_end(timeout_s)

    @property
    def wants_restart(self) -> bool:
        """Whether a stage asks for a new session."""
        return self._chain.wants_restart

    @property
    def goal(self) -> NDArray[np.int32]:
        """The assignment last commanded."""
        return self._first.goal

    @property
    def measured(self) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Rates and sizes of the first stage's bins."""
        return self._first.measured

    def rebalance(self, goal: NDArray[np.int32], *, label: str) -> str:
        """Asks both stages for an assignment, or none where one refuses it; returns the first one's command's id."""
        before, command = self._first.goal, self._first.rebalance(goal, label=label)
        with ended_on_error(lambda: _taken_back(self._first, before)):
            self._second.rebalance(goal, label=label)
        return command

    def autoscale(self, policy: str | None, **how: Any) -> None:
        """Lets a policy rescale each stage, or none where one refuses it, see `StreamHandle.autoscale`."""
        handles = (self._first, self._second)
        if policy is None:
            close_all([partial(handle.autoscale, None) for handle in handles], "autoscaling")
            return
        for handle in handles:
            with ended_on_error(partial(self.autoscale, None)):
                handle.autoscale(policy, **how)

    def status(self) -> dict[str, Any]:
        """Returns the first stage's status with what is still to be done in both, and that of each stage (`stages`).

        The second stage has done all once its watermark is that of the first one, whose results it has then read.
        """
        first, second = self._first.status(), self._second.status()
        followed = first["watermark"] is None or first["watermark"] == second["watermark"]
        return {
            **first,
            "stages": dict(zip(STAGES, (first, second), strict=True)),
            "migrating": first["migrating"] or second["migrating"],
            "misplaced": first["misplaced"] + second["misplaced"],
            "queued": first["queued"] + second["queued"],
            "settled": first["settled"] and second["settled"] and followed,
        }

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        self._chain.__exit__(kind, *rest)


def _taken_back(first: StreamHandle, before: NDArray[np.int32]) -> None:
    """Gives the first stage back the assignment that it had; where it has ended, the second one's error says so."""
    with suppress(UsageError):
        first.rebalance(before, label="as the second stage")


def start_chain(
    frame: DataFrame,
    operator: Operator,
    run: Run,
    *,
    results: Output,
    second: Recorder,
    on: Mapping[str, Any],
    settings: Mapping[str, Any],
) -> ChainedQuery:
    """Starts the chain of a run's query on its checkpoint, or continues it.

    Args:
        frame: the input.
        operator: the first stage.
        run: the run.
        results: where the query's results go; those of the first stage go through a topic named after it.
        second: takes the epochs and events of the second stage.
        on: what takes those of the first one, as options of `impls.stream`.
        settings: options of both.
    """
    then = second_of(run)
    assert then is not None, "the query has two stages"
    own, of_second = run.experiment, {"on_epoch": second.on_epoch, "on_event": second.event}
    stages = [
        Stage(FIRST, partial(stream, key=KEY, time=TIME, operator=operator, **on), own.workers, then.schema()),
        Stage(SECOND, partial(stream, key=then.key, operator=then(), **dict[str, Any](of_second)), own.workers),
    ]
    running = chain(
        frame, stages, name=_name(settings["checkpoint"]), bootstrap=results.bootstrap,
        results=results, partitions=own.result_partitions, source={"kafka.fetch.max.wait.ms": "20"}, **settings,
    )  # fmt: skip
    return ChainedQuery(running, autoscaled=own.autoscale is not None)


def _name(checkpoint: Path) -> str:
    """Returns the chain's name, after which its topic is named: another one for a run that begins anew."""
    path = checkpoint / "chain"
    if not path.exists():
        checkpoint.mkdir(parents=True, exist_ok=True)
        write_text(path, f"rescale-{uuid.uuid4().hex}")
    return path.read_text(encoding="utf-8")
