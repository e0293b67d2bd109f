"""Every mechanism there is, on random views: valid plans, progress, nothing moved in vain, same view same plan."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from impls import catalog
from impls.runtime.validate import validate
from impls.runtime.view import View

RESTARTS = {"runtime-restart": "query", "restart-application": "application"}
LIVE = [name for name in catalog.names() if name not in {"none", *RESTARTS}]


@st.composite
def views(draw) -> View:
    bins, workers = 2 ** draw(st.integers(1, 7)), draw(st.integers(1, 9))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    routing = random.integers(0, workers, bins).astype(np.int32)
    goal = random.integers(0, draw(st.integers(1, 9)), bins).astype(np.int32)
    keep = random.random(bins) < draw(st.sampled_from([0.0, 0.5, 0.95]))
    started = draw(st.integers(0, 100))
    epoch = started + draw(st.integers(0, 20))
    stopped = draw(st.sampled_from([-1, epoch, draw(st.integers(started, epoch))]))
    return View.make(routing, np.where(keep, routing, goal), epoch=epoch, started=started, stopped=stopped)


@pytest.mark.parametrize("name", catalog.names())
@given(view=views())
@settings(max_examples=60)
def test_the_plan_is_valid_and_the_same_for_the_same_view(name, view):
    mechanism = catalog.make(name)
    plan, again = mechanism.plan(view), mechanism.plan(view)
    validate(plan, view)
    assert plan.pulls == again.pulls
    assert np.array_equal(plan.routing, again.routing)


@pytest.mark.parametrize("name", catalog.names())
@given(view=views())
@settings(max_examples=60)
def test_nothing_moves_that_is_in_place(name, view):
    plan = catalog.make(name).plan(view)
    assert not {pull.bin for pull in plan.pulls} - set(view.misplaced.tolist())
    still = view.location == view.goal
    assert np.array_equal(plan.routing[still], view.routing[still])


@pytest.mark.parametrize("name", LIVE)
@given(view=views())
@settings(max_examples=60)
def test_location_gets_closer_to_the_goal_in_every_epoch(name, view):
    plan = catalog.make(name).plan(view)
    copies = plan.replicas + plan.shadows  # copying first is progress too
    assert bool(plan.pulls or copies) == bool(len(view.misplaced))
    assert all(worker == view.goal[bin_] for bin_, worker in copies)
    assert all(pull.target == view.goal[pull.bin] for pull in plan.pulls)


@pytest.mark.parametrize("name", RESTARTS)
@given(view=views())
def test_a_restart_stops_once_and_then_pulls_everything_from_the_checkpoint(name, view):
    plan = catalog.make(name).plan(view)
    stopped = view.stopped >= view.started
    assert (plan.stop == RESTARTS[name]) == (len(view.misplaced) > 0 and not stopped)
    assert [pull.bin for pull in plan.pulls] == (view.misplaced.tolist() if stopped else [])
    assert plan.from_checkpoint == (len(plan.pulls) > 0)


@given(view=views(), per_pair=st.integers(1, 5), gap=st.integers(0, 3))
def test_a_batched_epoch_is_a_matching_and_gaps_are_kept(view, per_pair, gap):
    plan = catalog.make("megaphone-batched", bins_per_pair=per_pair, gap_epochs=gap).plan(view)
    pairs = {(pull.source, pull.target) for pull in plan.pulls}
    assert len({source for source, _ in pairs}) == len(pairs) == len({target for _, target in pairs})
    for pair in pairs:
        assert sum((pull.source, pull.target) == pair for pull in plan.pulls) <= per_pair
    moving = (view.epoch - view.started) % (gap + 1) == 0
    assert bool(plan.pulls) == (moving and len(view.misplaced) > 0)


@given(view=views())
def test_fluid_moves_one_bin_and_all_at_once_all(view):
    wanted = len(view.misplaced)
    assert len(catalog.make("megaphone-fluid").plan(view).pulls) == min(wanted, 1)
    assert len(catalog.make("megaphone-all-at-once").plan(view).pulls) == wanted


def test_the_matching_is_maximum():
    routing = np.array([0, 0, 1, 1], np.int32)  # 0 may give to 2 or 3, 1 only to 2: both can move in one epoch
    plan = catalog.make("megaphone-batched").plan(View.make(routing, np.array([2, 3, 2, 2], np.int32)))
    assert {(pull.source, pull.target) for pull in plan.pulls} == {(0, 3), (1, 2)}


@pytest.mark.parametrize("name", LIVE)
def test_a_thousand_workers_and_16384_bins_are_planned(name):
    random = np.random.default_rng(1)
    routing, goal = (random.integers(0, 1000, 1 << 14).astype(np.int32) for _ in range(2))
    view = View.make(routing, goal)
    validate(catalog.make(name).plan(view), view)
