"""What the suite consists of: every mechanism x operator x scenario x keys, and tours that run cases on a query."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from harness.suites.conformance.bounds import completes
from harness.suites.conformance.watch import Watch
from impls import catalog
from impls.errors import UsageError
from impls.placement import goal

BINS = 16
OPERATORS = ("dense", "hash")
KEYS = ("uniform", "zipf")
_KNOBS = {  # values that make a migration of a few small bins take several epochs, for every mechanism with the option
    "bins_per_pair": 2,
    "catch_up_epochs": 2,
    "chunk_bins": 3,
    "gap_epochs": 1,
    "interval_epochs": 3,
    "pull_budget_bytes": 9000,
    "replicate_bytes": 9000,
    "replicated": 0.5,
    "small_bytes": 0,
    "subscale_bins": 2,
}

_RECORDS_FIRST, _RECORDS = 400, 200

Goal = NDArray[np.int32]


@dataclass(frozen=True)
class _Step:
    """One command of a scenario.

    Attributes:
        goal: from the goal when the scenario begins and the one now, the next; None for one that must be refused.
        during: it is given while the migration of the step before is under way.
    """

    goal: Callable[[Goal, Goal], Goal] | None = None
    during: bool = False


def _workers(now: Goal) -> int:
    return int(now.max()) + 1


def _resized(policy: str, more: int) -> _Step:
    return _Step(lambda start, now: goal(policy, now, _workers(start) + more))


# In the order of a tour. Each begins with whatever workers there are, `shrink` with at least 3.
SCENARIOS: dict[str, tuple[_Step, ...]] = {
    "refused": (_Step(),),
    "nothing": (_Step(lambda _start, now: now),),
    "grow": (_resized("minimal_move", 2),),
    "rebalance": (_Step(lambda _start, now: np.roll(now, 3)),),
    "there and back": (_resized("minimal_move", 1), _Step(lambda start, _now: start)),
    "command during": (
        _resized("contiguous", 1),
        _Step(lambda start, now: goal("minimal_move", np.roll(now, 2), _workers(start)), during=True),
    ),
    "shrink": (_resized("minimal_move", -2),),
}


def commands_of(scenario: str) -> int:
    """Returns how many commands of a scenario begin a migration: those that are not refused."""
    return sum(step.goal is not None for step in SCENARIOS[scenario])


@dataclass(frozen=True, order=True)
class ConformanceCase:
    """One cell of the product."""

    mechanism: str
    operator: str
    scenario: str
    keys: str


@dataclass(frozen=True, order=True)
class Tour:
    """One query that runs scenarios one after another, in the order of SCENARIOS."""

    mechanism: str
    operator: str
    keys: str
    scenarios: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.mechanism}/{self.operator}/{self.keys}"

    @property
    def workers(self) -> int:
        """Number of workers that it begins with."""
        return 2 if "grow" in self.scenarios else 4


def all_cases() -> list[ConformanceCase]:
    """Returns the full product, over every mechanism that the catalog finds."""
    return [ConformanceCase(*cell) for cell in product(catalog.names(), OPERATORS, SCENARIOS, KEYS)]


def options_for(mechanism: str, redis: str = "") -> dict[str, Any]:
    """Returns the options a mechanism runs with: those of `_KNOBS` that it has, and the server if it needs one."""
    return catalog.known(mechanism, _KNOBS | {"redis": redis})


def pairs(cases: Sequence[ConformanceCase]) -> list[ConformanceCase]:
    """Returns some of the cases in which every two values of two axes that are together in a case are so again.

    Greedy: each time the case with most new pairs; among equals one whose query is there already, and of these one
    whose query has the fewest cases, then the first.
    """
    left = {pair for case in cases for pair in _pairs_of(case)}
    chosen: list[ConformanceCase] = []
    queries: Counter[tuple[str, str, str]] = Counter()

    def worth(case: ConformanceCase) -> tuple[int, bool, int]:
        there = queries[_query_of(case)]
        return len(left & _pairs_of(case)), there > 0, -there

    while left:
        chosen.append(max(cases, key=worth))
        queries[_query_of(chosen[-1])] += 1
        left -= _pairs_of(chosen[-1])
    return chosen


def tours(cases: Iterable[ConformanceCase]) -> list[Tour]:
    """Returns the tours that run the cases, sorted: one for each mechanism, operator and keys among them."""
    scenarios: dict[tuple[str, str, str], set[str]] = {}
    for case in cases:
        scenarios.setdefault(_query_of(case), set()).add(case.scenario)
    return sorted(Tour(*query, tuple(s for s in SCENARIOS if s in found)) for query, found in scenarios.items())


def _query_of(case: ConformanceCase) -> tuple[str, str, str]:
    return case.mechanism, case.operator, case.keys


def _pairs_of(case: ConformanceCase) -> frozenset[tuple[tuple[str, str], ...]]:
    axes = [(axis, getattr(case, axis)) for axis in ("mechanism", "operator", "scenario", "keys")]
    return frozenset(combinations(axes, 2))


class Query(Protocol):
    """A query that counts keys; waiting raises TimeoutError when its deadline passes."""

    watch: Watch
    sent: int

    @property
    def goal(self) -> Goal:
        """The assignment last commanded."""

    def rebalance(self, goal: Goal, label: str) -> None:
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


def _run_step(tour: Tour, query: Query, step: _Step, start: Goal, label: str, *, wait: bool) -> None:
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
