"""The simulated query under a load that changes: real policies over workers that only cost time."""

from dataclasses import replace

import numpy as np
import pytest

from generators.rates import make_schedule
from harness.measure.scores import Needed
from harness.suites.autoscale.suite import needed_of
from harness.suites.scale.autoscaled import AutoscaledSetting, predict_autoscaled
from harness.suites.scale.load import EvenLoad, ShapedLoad
from harness.suites.scale.network import read_costs
from harness.suites.scale.scenario import at_scale
from impls.autoscale.loop import AutoscaleSettings

SHARES = np.full(16, 1 / 16)
COSTS = replace(at_scale(read_costs()), record_us=5000.0, jitter=0.0)


def setting(shape="constant", rate=96, policy="ds2:utilisation=0.6,catch_up_s=10", workers=1, **more):
    schedule = make_schedule(shape, rate, 5.0)
    autoscale = None if policy is None else AutoscaleSettings(policy, 1, 8, 1.0, 2.0, 1)
    usual = {"schedule": schedule, "shares": SHARES, "sizes": np.full(16, 4096), "workers": workers, "costs": COSTS,
             "autoscale": autoscale, "needed": needed_of(schedule, 120.0, 8), "lead_s": 5.0, "end_s": 65.0,
             "objective_ms": 1000.0, "limit": 800}  # fmt: skip
    return AutoscaledSetting(**{**usual, **more})


def test_a_shaped_load_at_a_constant_rate_is_the_even_one():
    even, shaped = EvenLoad(SHARES * 1000, 3), ShapedLoad(SHARES, make_schedule("constant", 1000), 3)
    for at in (0.0, 250.0, 1999.0):
        assert np.abs(even.until(at) - shaped.until(at)).max() <= 1
    times, bins = np.array([100.0, 900.0]), np.array([2, 5])
    assert shaped.until(times, bins).tolist() == [shaped.until(100.0)[2], shaped.until(900.0)[5]]


def test_an_epoch_takes_no_more_than_its_limit():
    load = ShapedLoad(SHARES, make_schedule("constant", 1000), limit=500)
    assert load.cut(0.0, 400.0) == 400.0
    assert load.cut(0.0, 4000.0) == pytest.approx(500.0)
    assert load.due(load.cut(1000.0, 4000.0)) == 1500


def test_a_steady_load_that_the_workers_do_is_below_the_objective_and_left_alone():
    found = predict_autoscaled("meces", setting())
    assert (found.score.rescales, found.score.above_s) == (0, 0)
    assert found.score.worker_s == pytest.approx(60, abs=0.1)


def test_an_overload_without_a_policy_is_above_the_objective_from_then_on():
    found = predict_autoscaled("none", setting("step:20=5", policy=None, step_s=25.0))
    assert found.score.above_s == pytest.approx(40, abs=2)
    assert found.score.right_s is None


@pytest.mark.parametrize("mechanism", ["meces", "megaphone-all-at-once", "runtime-restart"])
def test_a_step_of_five_is_met_in_three_rescales(mechanism):
    found = predict_autoscaled(mechanism, setting("step:20=5", step_s=25.0))
    assert found.score.rescales_to_right <= 3, found
    assert found.score.above_s < 15
    assert 4 <= found.steps[-1].workers <= 5


def test_a_restart_costs_more_time_above_the_objective_than_a_live_migration():
    spike = {"shape": "spike:at=15,factor=5,rise=8,decay=8"}
    live, stop = (predict_autoscaled(name, setting(**spike)) for name in ("meces", "restart-application"))
    assert live.score.above_s < stop.score.above_s


def test_the_same_seed_gives_the_same_outcome():
    costs = replace(COSTS, jitter=0.1)
    one, other = (predict_autoscaled("meces", setting("step:20=5", costs=costs, seed=4)) for _ in range(2))
    assert one == other
    assert isinstance(setting().needed, Needed)
