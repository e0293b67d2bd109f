"""Runs the scenarios of a tour on a query, on Spark or simulated."""

from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from harness.suites.conformance.bounds import completes
from harness.suites.conformance.cases import BINS, SCENARIOS, ScenarioStep, Tour
from harness.suites.conformance.watch import Watch
from impls.errors import UsageError

__all__ = ["Query", "run_scenarios"]

_RECORDS_FIRST, _RECORDS = 400, 200


class Query(Protocol):
    """A query that counts keys; waiting raises TimeoutError when its deadline passes."""

    watch: Watch
    sent: int

    @property
    def goal(self) -> NDArray[np.int32]:
        """The assignment last commanded."""

    def rebalance(self, goal: NDArray[np.int32], label: str) -> None:
        """Asks for an assignment."""

    def rescale(self, workers: int) -> None:
        """Asks for a number of workers; raises UsageError for too many."""

    def load(self, records: int) -> None:
        """Sends records; returns before they are applied."""

    def await_true(self, wanted: Callable[[], bool], what: str) -> None:
        """Returns when something that the watch can tell holds."""


def run_scenarios(tour: Tour, query: Query) -> None:
    """Runs the scenarios of a tour; the query's watch records what goes wrong."""
    query.load(_RECORDS_FIRST)
    _await_applied(query)
    for scenario in tour.scenarios:
        start, steps = query.goal, SCENARIOS[scenario]
        for number, step in enumerate(steps):
            during = number + 1 < len(steps) and steps[number + 1].during
            _run_step(tour, query, step, start, f"{scenario} {number + 1}", wait=not during)
    _await_applied(query)


def _run_step(
    tour: Tour, query: Query, step: ScenarioStep, start: NDArray[np.int32], label: str, *, wait: bool
) -> None:
    if step.goal is None:
        query.watch.problems += [(label, sentence) for sentence in _refusal(query)]
        query.load(_RECORDS)
        return
    wanted = step.goal(start, query.goal).astype(np.int32)
    query.watch.expect(label, wanted)
    query.rebalance(wanted, label)
    query.load(_RECORDS)
    query.await_true(lambda: label in query.watch.migrations, f"{label} to begin")
    if wait and completes(tour.mechanism):
        query.await_true(lambda: query.watch.done(label), f"{label} to end")
    if wait:
        query.load(_RECORDS)
        _await_applied(query)


def _await_applied(query: Query) -> None:
    query.await_true(lambda: query.watch.applied >= query.sent, f"{query.sent} records")


def _refusal(query: Query) -> list[str]:
    """Asks for more workers than bins and returns what is wrong with the answer."""
    before = query.goal
    try:
        query.rescale(BINS + 1)
    except UsageError as error:
        words = str(error)
        one_sentence = words.endswith(".") and ". " not in words and "\n" not in words and str(BINS) in words
        same = bool((query.goal == before).all())
        return [] if one_sentence and same else [f"the answer is not one sentence of what is wrong: {words}"]
    return [f"{BINS + 1} workers for {BINS} bins were not refused"]
