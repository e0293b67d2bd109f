"""What holds of the autoscaler whatever is measured: bounds, calm under a steady load, three rescales after a step."""

import math

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scaled import IdealQuery, turns

from impls.autoscale import Interval, Rescaled
from impls.autoscale.loop import Autoscaler, AutoscaleSettings

POLICIES = st.sampled_from(["ds2", "ds2:activation=3", "threshold:stabilisation_s=30", "dhalion:calm_s=20", "none"])
RATES = st.floats(0, 1e6, allow_nan=False)


@st.composite
def intervals(draw):
    """Any intervals, one behind the other, of any numbers of workers."""
    out, at = [], 0.0
    for _ in range(draw(st.integers(1, 12))):
        workers, seconds = draw(st.integers(1, 12)), draw(st.floats(0.1, 100))
        useful = draw(st.lists(st.floats(0, seconds), min_size=workers, max_size=workers))
        applied = draw(st.lists(RATES, min_size=workers, max_size=workers))
        backlog, before = draw(RATES), draw(RATES)
        out.append(Interval(at, at + seconds, workers, draw(RATES), tuple(applied), tuple(useful), backlog, before))
        at += seconds
    return out


@example("ds2", [Interval(0.0, 2.0, 1, 0.0, (5e-324,), (2.0,), 0.0, 0.0)], 1, 0, 0.0, 0)
@example("ds2", [Interval(0.0, 1.0, 1, 1.0, (5e-324,), (1.0,), 0.0, 0.0)], 1, 0, 0.0, 0)
@example("ds2", [Interval(0.0, 1.0, 1, 1.0, (1.0,), (5e-324,), 0.0, 0.0)], 1, 0, 0.0, 0)
@given(POLICIES, intervals(), st.integers(1, 8), st.integers(0, 8), st.floats(0, 60), st.integers(0, 3))
def test_a_decision_never_leaves_the_bounds_the_warm_up_or_the_cool_down(policy, found, least, more, cool, warmup):
    loop = Autoscaler(AutoscaleSettings(policy, least, least + more, 1.0, cool, warmup), [Rescaled(-5.0, 1, 2)])
    last = -5.0
    for place, one in enumerate(found):
        decided = loop.decide(one)
        if decided.wanted is None:
            continue
        assert place >= warmup
        assert least <= decided.wanted <= least + more
        assert decided.wanted != one.workers
        assert decided.at_s >= last + cool - 1e-6
        last = decided.at_s
        assert decided.reason


@pytest.mark.lengthy
@example("dhalion:calm_s=20", 44_892.0, 1, 0)
@given(POLICIES, st.floats(10, 50_000), st.integers(1, 64), st.integers(0, 10**6))
@settings(max_examples=200)
def test_a_steady_load_comes_to_rest(policy, offered, workers, seed):
    query = IdealQuery(policy, workers=workers, seed=seed)
    for _ in range(4):
        query.run(offered, 50)
        query.backlog = 0.0  # workers that the load all but fills would take any time for it
    still = query.run(offered, 50)
    assert len(set(still)) == 1, query.rescales


@pytest.mark.lengthy
@given(st.floats(10, 40_000), st.integers(1, 64), st.integers(0, 10**6))
@settings(max_examples=300)
def test_ds2_with_noise_within_its_tolerance_turns_once_at_most(offered, workers, seed):
    query = IdealQuery("ds2", workers=workers, noise=0.1, seed=seed)
    query.run(offered, 200)
    assert turns(query.rescales) <= 1, query.rescales
    need = offered / 800
    assert query.workers * 1.1 >= min(need, 64) * 0.9
    assert query.workers <= max(1, math.ceil(need * 1.1 / 0.9))


@pytest.mark.lengthy
@given(st.floats(0.1, 8.0), st.floats(0, 0.1), st.integers(0, 10**6))
@settings(max_examples=300)
def test_ds2_is_right_three_rescales_after_a_step_of_five(need, noise, seed):
    query = IdealQuery("ds2", noise=noise, seed=seed)
    query.run(need * 800, 20)
    before = len(query.rescales)
    query.run(need * 5 * 800, 60)
    assert len(query.rescales) - before <= 3, query.rescales
    assert need * 5 <= query.workers * 1.1 / (1 - noise) + 1e-9, "no worker is overloaded"
    assert query.workers <= math.ceil(need * 5 * (1 + noise) / 0.9), "and none is there for nothing"
