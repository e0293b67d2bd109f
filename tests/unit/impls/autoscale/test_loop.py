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
