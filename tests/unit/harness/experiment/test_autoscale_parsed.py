"""A migration that a policy decides: how its text is read, and what goes with it."""

import pytest

from harness.experiment.description import parse_autoscale
from harness.experiment.make import make_experiment
from harness.experiment.schedules import plan_for
from impls.errors import UsageError

TEXT = "autoscale:policy=ds2,min=2,max=8,interval_s=0.5,cooldown_s=3,warmup=0,utilisation=0.6,catch_up_s=20"


def test_bounds_and_times_are_the_autoscaler_s_and_all_else_is_the_policy_s():
    found = parse_autoscale(TEXT)
    assert found.policy == "ds2:utilisation=0.6,catch_up_s=20"
    assert (found.least, found.most, found.interval_s, found.cooldown_s, found.warmup) == (2, 8, 0.5, 3.0, 0)
    assert parse_autoscale("autoscale:policy=threshold,max=3").policy == "threshold"
    assert parse_autoscale("rescale") is None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("autoscale", "autoscale:policy=ds2,min=1,max=8"),
        ("autoscale:policy=ds2", "its bounds"),
        ("autoscale:max=8", "A policy"),
        ("autoscale:policy=magic,max=8", "unknown"),
        ("autoscale:policy=ds2,max=8,magic=1", "no option 'magic'"),
        ("autoscale:policy=ds2,max=many", "max of autoscale is a number"),
        ("autoscale:policy=ds2,min=9,max=8", "min=9, max=8"),
        ("autoscale:policy=ds2,max=512", "bins"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(text, told):
    with pytest.raises(UsageError, match=told):
        make_experiment(mechanism="meces", migration=text)


def test_an_autoscaled_experiment_has_no_schedule_and_room_for_the_most_workers():
    experiment = make_experiment(mechanism="none,meces", migration=TEXT, workers=2)
    assert plan_for(experiment) == []
    assert experiment.most_workers == 8
    assert experiment.runs()[0].slots == 8


def test_what_has_no_workers_to_rescale_or_no_time_for_a_fault_is_refused():
    with pytest.raises(UsageError, match="leave it out"):
        make_experiment(mechanism="native-repartition", workload="hash", migration=TEXT)
    with pytest.raises(UsageError, match="leave out --fault"):
        make_experiment(mechanism="meces", migration=TEXT, fault="driver@migrating")
