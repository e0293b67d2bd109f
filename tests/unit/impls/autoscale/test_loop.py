"""Bounds, warm-up and cool-down around a policy."""

import pytest

from impls.autoscale import Interval, Rescaled
from impls.autoscale.loop import Autoscaler, AutoscaleSettings
from impls.driver.autoscaling import past_of
from impls.errors import UsageError


def at(begin, workers, offered, seconds=10.0):
    """Workers of 1000 records/s that are half of the time of use."""
    each = 0.5 * seconds
    return Interval(begin, begin + seconds, workers, offered, (each * 1000,) * workers, (each,) * workers)


def settings(policy="ds2", **more):
    return AutoscaleSettings(policy, **{"least": 1, "most": 8, "warmup": 0, "cooldown_s": 0, **more})


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"policy": "magic"}, "unknown"),
        ({"least": 0}, "1 <= min <= max"),
        ({"least": 9}, "1 <= min <= max"),
        ({"interval_s": 0.01}, "interval_s must be at least 0.1"),
        ({"cooldown_s": -1}, "cooldown_s"),
        ({"warmup": -1}, "warmup"),
        ({"percentile": 99}, "percentile"),
    ],
)
def test_settings_that_cannot_be_are_refused(wrong, told):
    with pytest.raises(UsageError, match=told):
        settings(**wrong)


def test_more_than_the_bounds_allow_is_not_wanted():
    found = Autoscaler(settings()).decide(at(0, 2, 80_000))
    assert found.wanted == 8
    assert "at most 8, not 100" in found.reason
    assert Autoscaler(settings()).decide(at(0, 8, 80_000)).wanted is None


def test_workers_beyond_the_bounds_come_back_whatever_the_policy_says():
    assert Autoscaler(settings("none", least=3)).decide(at(0, 2, 0)).wanted == 3
    assert Autoscaler(settings("none", most=3)).decide(at(0, 5, 0)).wanted == 3


def test_a_warm_up_follows_the_start_and_each_migration():
    loop = Autoscaler(settings(warmup=2))
    assert [loop.decide(at(10.0 * i, 2, 8000)).wanted for i in range(3)] == [None, None, 8]
    loop.moved()
    assert [loop.decide(at(10.0 * i, 2, 8000)).wanted for i in range(3, 6)] == [None, None, 8]


def test_a_cool_down_lasts_from_one_rescale_to_the_next():
    loop = Autoscaler(settings(cooldown_s=25))
    decided = [loop.decide(at(10.0 * i, 2, 8000)) for i in range(5)]
    assert [one.wanted for one in decided] == [8, None, None, 8, None]
    assert "cool-down lasts another 15.0 s" in decided[1].reason


def test_a_cool_down_outlives_the_process():
    loop = Autoscaler(settings(cooldown_s=25), [Rescaled(5.0, 1, 2)])
    assert [loop.decide(at(10.0 * i, 2, 8000)).wanted for i in range(3)] == [None, None, 8]


def test_decisions_say_their_numbers_and_are_read_back_as_rescales():
    loop = Autoscaler(settings())
    entries = [{"policy": "ds2", **loop.decide(at(10.0 * i, 2, rate)).to_json()} for i, rate in enumerate((700, 8000))]
    assert entries[1]["numbers"]["offered_rate"] == 8000
    assert entries[1]["numbers"]["true_rate"] == 1000
    assert entries[1]["numbers"]["need"] == 10
    assert past_of(entries) == [Rescaled(10.0, 2, 1, 700), Rescaled(20.0, 2, 8, 8000)]


def idle(begin, workers, seconds):
    return Interval(begin, begin + seconds, workers, 10.0, (1.0,) * workers, (0.0001,) * workers)


@pytest.mark.parametrize("seconds", [0.1, 0.2, 10.0])
def test_a_stabilisation_window_is_remembered_however_short_intervals_are(seconds):
    loop, at_s, found = Autoscaler(settings("threshold:stabilisation_s=300", interval_s=seconds)), 0.0, None
    while at_s < 310 and (found is None or found.wanted is None):
        found, at_s = loop.decide(idle(at_s, 8, seconds)), at_s + seconds
    assert found.wanted == 1
    assert 300 <= at_s <= 300 + 2 * seconds


def test_a_policy_that_looks_back_further_than_is_remembered_is_refused():
    with pytest.raises(UsageError, match=r"looks back 20000 s, more than 100,000 intervals of 0.1 s: make interval_s"):
        settings("threshold:stabilisation_s=20000", interval_s=0.1)


@pytest.mark.parametrize("seconds", [0.05, 0.0, -3.0])
def test_nothing_follows_from_an_interval_in_which_the_clock_was_set(seconds):
    loop = Autoscaler(settings("threshold", most=64))
    found = loop.decide(Interval(1000.0, 1000.0 + seconds, 4, 100.0, (250.0,) * 4, (2.0,) * 4))
    assert (found.wanted, found.numbers) == (None, {})
    assert "a clock was set" in found.reason
    assert loop.decide(at(1010, 4, 4000)).wanted is None  # half of the time of use, with a target of 80 %


def test_a_clock_that_was_set_back_between_two_starts_leaves_one_cool_down():
    loop = Autoscaler(settings("none", least=3, cooldown_s=30), [Rescaled(9000.0, 1, 2)])
    found = [loop.decide(at(begin, 2, 0)).wanted for begin in range(0, 50, 10)]
    assert found == [None, None, None, 3, None]


def test_workers_that_a_placement_leaves_without_bins_are_not_asked_for_again():
    loop = Autoscaler(settings("none", least=52, most=52), moves=lambda workers: workers != 52)
    found = [loop.decide(at(begin, 51, 0)) for begin in range(0, 100, 10)]
    assert [one.wanted for one in found] == [None] * 10
    assert "For 52 workers no bin would move" in found[0].reason
    assert Autoscaler(settings("none", least=52, most=52)).decide(at(0, 51, 0)).wanted == 52
