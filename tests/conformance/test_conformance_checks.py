"""The suite sees what it is to see: selections cover every pair, and every planted fault makes a case invalid."""

import dataclasses
from itertools import combinations

import numpy as np
import pytest
import simulated_query
from simulated_query import SimulatedQuery, Topic

from harness.suites.conformance import bounds
from harness.suites.conformance.bounds import bound
from harness.suites.conformance.cases import SCENARIOS, ConformanceCase, Tour, all_cases, pairs, run_scenarios, tours
from harness.suites.conformance.run import selected
from impls import catalog
from impls.errors import UsageError
from impls.protocol.mechanism import Mechanism
from impls.protocol.moves import movable, pull_plan
from impls.protocol.view import View

AXES = ("mechanism", "operator", "scenario", "keys")


def test_the_product_is_every_mechanism_with_everything():
    cases = all_cases()
    assert len(set(cases)) == len(cases) == len(catalog.names()) * 2 * len(SCENARIOS) * 2
    toured = [
        ConformanceCase(tour.mechanism, tour.operator, name, tour.keys)
        for tour in tours(cases)
        for name in tour.scenarios
    ]
    assert sorted(toured) == sorted(cases)


def test_the_selection_has_every_pair_of_values_and_is_the_same_each_time():
    chosen = pairs(all_cases())
    for one, two in combinations(AXES, 2):
        found, wanted = ({(getattr(c, one), getattr(c, two)) for c in cases} for cases in (chosen, all_cases()))
        assert found == wanted
    assert chosen == pairs(all_cases())
    assert len(chosen) == len(catalog.names()) * len(SCENARIOS), "no fewer would do: each mechanism has each scenario"
    assert len(tours(chosen)) == 2 * len(catalog.names())


def test_options_choose_cases_and_unknown_ones_are_refused():
    cases = selected("meces,rhino", "hash", "grow")
    assert [(case.mechanism, case.keys) for case in cases] == [
        (m, k) for m in ("meces", "rhino") for k in ("uniform", "zipf")
    ]
    assert len(selected(quick=True)) < len(selected())
    with pytest.raises(UsageError, match="scenario 'growing' is unknown"):
        selected(scenario="growing")


def test_every_bound_is_of_a_mechanism_that_there_is():
    assert set(bounds._BOUNDS) == set(catalog.names()) - {"none"}


@pytest.mark.parametrize(
    ("name", "options", "most"),
    [
        ("megaphone-all-at-once", {}, 1),
        ("megaphone-fluid", {}, 6),
        ("megaphone-batched", {"bins_per_pair": 2}, 3),
        ("megaphone-batched", {"bins_per_pair": 1, "gap_epochs": 2}, 18),
        ("partial-pause", {}, 2),
        ("meces", {"pull_budget_bytes": 1000}, 4),
        ("meces", {"pull_budget_bytes": 1200}, 1 + 800 // 1200 + 1),
        ("runtime-restart", {}, 1),
    ],
)
def test_bounds_follow_from_bins_and_options(name, options, most):
    """Four bins of 600 bytes, or 200, go from worker 0 to 1, two more from 0 to 2."""
    size = 600 if options.get("pull_budget_bytes") == 1000 else 200
    goal = np.array([1, 1, 1, 1, 2, 2, 0, 0], np.int32)
    assert bound(name, options, View.make(np.zeros(8, np.int32), goal, size=size)) == most


class Detour(Mechanism):
    """Sends each bin to a wrong worker first."""

    def plan(self, view):
        astray = np.where(view.goal != view.location, (view.goal + 1) % view.workers, view.goal).astype(np.int32)
        now = dataclasses.replace(view, goal=astray) if view.epoch == view.started else view
        return pull_plan(now, movable(now).bins)


class Slow(Mechanism):
    """Moves one bin in every third epoch."""

    def plan(self, view):
        return pull_plan(view, movable(view).bins[: (view.epoch - view.started) % 3 == 2])


class Never(Mechanism):
    """Moves nothing."""

    def plan(self, view):
        return pull_plan(view, movable(view).bins[:0])


@pytest.fixture
def planted(monkeypatch, tmp_path):
    """planted(mechanism or name) carries a tour out and returns its rows."""
    there = catalog._mechanisms()

    def run(how, scenarios=("grow", "rebalance"), query=SimulatedQuery):
        name = how if isinstance(how, str) else "planted"
        monkeypatch.setattr(catalog, "_mechanisms", lambda: {**there, "planted": how})
        tour = Tour(name, "dense", "uniform", scenarios)
        one = query(tour, tmp_path / "run")
        try:
            run_scenarios(tour, one)
            return one.rows()
        finally:
            one.close()

    return run


def reasons(rows):
    return [reason for row in rows for reason in row.reasons]


def test_a_mechanism_that_is_not_in_the_table_is_judged_like_the_others(planted):
    rows = planted(catalog._mechanisms()["megaphone-fluid"])
    assert [row.verdict for row in rows] == ["valid", "valid"]
    assert all(0 < row.epochs <= row.bound for row in rows)


def test_a_detour_is_seen(planted):
    rows = planted(Detour)
    assert {row.verdict for row in rows} == {"invalid"}
    assert any("not its goal" in reason for reason in reasons(rows))
    assert any("did not move as often as they had to" in reason for reason in reasons(rows))


def test_a_slow_one_is_seen(planted):
    rows = planted(Slow)
    assert {row.verdict for row in rows} == {"invalid"}
    assert all("epochs, more than" in reason for reason in reasons(rows))


def test_one_that_never_ends_is_seen(planted, monkeypatch):
    monkeypatch.setattr(simulated_query, "EPOCHS_MOST", 30)
    with pytest.raises(TimeoutError, match="waited 30 epochs for grow 1 to end"):
        planted(Never)


class Greedy(SimulatedQuery):
    """Reports more bytes than it moved."""

    def __init__(self, *given):
        super().__init__(*given)
        told, watch = self.watch.on_epoch, self.watch

        def tell(record):
            for report in record.reports:
                moves = report.moves
                report.moves = dataclasses.replace(moves, bytes=moves.bytes + bool(moves.bins))
            told(record)

        self._driver._on_epoch = watch.on_epoch = tell


def test_a_byte_too_many_is_seen(planted):
    rows = planted("megaphone-all-at-once", query=Greedy)
    assert {row.verdict for row in rows} == {"invalid"}
    assert all("bytes were moved and" in reason for reason in reasons(rows))


class Forgetful(Topic):
    """Loses one result."""

    def send(self, results, *, epoch, **more):
        super().send(results, epoch=epoch, **more)
        if epoch == 3 and len(results.keys):
            self.rows.pop()


def test_a_lost_result_is_seen(planted, monkeypatch):
    monkeypatch.setattr(simulated_query, "Topic", Forgetful)
    rows = planted("megaphone-all-at-once")
    assert {row.verdict for row in rows} == {"invalid"}
    assert any("lost" in reason for reason in reasons(rows))


def test_an_assignment_that_is_not_refused_is_seen(planted, monkeypatch):
    monkeypatch.setattr(SimulatedQuery, "rescale", lambda _self, _workers: None)
    rows = planted("megaphone-all-at-once", scenarios=("refused",))
    assert reasons(rows) == ["refused 1: 17 workers for 16 bins were not refused"]
