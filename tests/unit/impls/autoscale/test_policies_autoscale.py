"""What each autoscaling policy decides in hand-made intervals, and which texts it refuses."""

import pytest
from scaled import IdealQuery

from impls import autoscale
from impls.autoscale import Interval, Measured, Rescaled, policies, policy_of
from impls.errors import UsageError
from impls.protocol.named import defaults_of


def interval(workers, offered, *, useful=0.5, rate=1000.0, backlog=0.0, before=0.0, begin=0.0, seconds=10.0):
    """Workers that are of use for a share of the time, at a true rate."""
    each = useful * seconds
    return Interval(
        begin, begin + seconds, workers, offered, (each * rate,) * workers, (each,) * workers, backlog, before
    )


def decide(text, *intervals, past=()):
    return policy_of(text)(Measured(intervals, past))


def test_the_former_name_of_a_policy_warns():
    with pytest.warns(DeprecationWarning, match="is AutoscalePolicy now"):
        assert autoscale.Policy is autoscale.AutoscalePolicy
    with pytest.raises(AttributeError, match="no attribute 'Policies'"):
        _ = autoscale.Policies


def test_the_policies_are_those_of_the_folder():
    assert list(policies()) == ["dhalion", "ds2", "none", "threshold"]
    assert defaults_of(policies()["ds2"]) == {"utilisation": 0.8, "catch_up_s": 30.0, "activation": 1, "tolerance": 0.1}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("magic", "unknown: use one of dhalion, ds2"),
        ("ds2:magic=1", "no option 'magic'"),
        ("ds2:utilisation=high", "is a number"),
        ("ds2:utilisation=0", "above 0"),
        ("ds2:utilisation=nan", "above 0"),
        ("ds2:activation=0", "at least 1"),
        ("threshold:tolerance=1", "below 1"),
        ("dhalion:scale_in=1", "below 1"),
        ("none:magic=1", "it takes none"),
    ],
)
def test_a_text_that_cannot_be_used_is_refused_in_a_sentence(text, told):
    with pytest.raises(UsageError, match=told):
        policy_of(text)


def test_a_true_rate_is_of_useful_time_and_leaves_out_workers_without_records():
    one = Interval(0.0, 10.0, 3, 900.0, (6000.0, 3000.0, 0.0), (6.0, 1.5, 0.0))
    assert one.processed_rate == 900
    assert one.true_rate == (1000 + 2000) / 2
    assert one.utilisation == pytest.approx(0.25)
    assert one.skew == pytest.approx(6.0 / 2.5)


def test_ds2_needs_the_offered_rate_over_true_rate_and_utilisation():
    found = decide("ds2", interval(2, 6400.0, useful=1.0))
    assert found.workers == 8
    assert found.numbers == {"need": 8.0}
    assert "8.00 workers" in found.reason
    assert decide("ds2:utilisation=0.64", interval(2, 6400.0, useful=1.0)).workers == 10


def test_ds2_adds_workers_for_a_backlog_that_the_headroom_does_not_catch_up_in_time():
    assert decide("ds2", interval(8, 6400.0, backlog=30 * 1600.0)).workers is None
    assert decide("ds2", interval(8, 6400.0, backlog=30 * 5600.0)).workers == 12
    assert decide("ds2:catch_up_s=300", interval(8, 6400.0, backlog=30 * 5600.0)).workers is None


def test_ds2_ignores_changes_within_its_tolerance():
    assert decide("ds2", interval(10, 8700.0)).workers is None
    assert decide("ds2", interval(10, 8900.0)).workers == 12
    assert decide("ds2", interval(10, 6500.0)).workers is None
    assert decide("ds2", interval(10, 6400.0)).workers == 9
    assert decide("ds2:tolerance=0", interval(10, 6400.0)).workers == 8


def test_ds2_waits_for_its_activation_and_takes_the_median():
    low, high = interval(2, 1600.0), interval(2, 6400.0, begin=10.0)
    assert decide("ds2:activation=2", low).workers is None
    assert decide("ds2:activation=2", low, high).workers == 5
    other = interval(3, 6400.0)
    assert decide("ds2:activation=2", other, high).workers is None, "an interval of other workers does not count"


def test_ds2_knows_nothing_without_records_and_one_worker_without_load():
    idle = Interval(0.0, 10.0, 4, 0.0, (0.0,) * 4, (0.0,) * 4)
    stuck = Interval(0.0, 10.0, 4, 100.0, (0.0,) * 4, (0.0,) * 4, backlog=1000.0)
    assert decide("ds2", idle).workers == 1
    assert decide("ds2", stuck).workers is None


def test_the_threshold_follows_the_ratio_of_utilisation_to_target():
    assert decide("threshold", interval(4, 4000.0, useful=1.0)).workers == 5
    assert decide("threshold", interval(4, 4000.0, useful=0.85)).workers is None
    assert decide("threshold:utilisation=0.5", interval(4, 4000.0, useful=0.8)).workers == 7


def test_the_threshold_rescales_in_to_the_most_of_its_window_once_that_is_full():
    busy, calm = interval(8, 4800.0, useful=0.6), interval(8, 1600.0, useful=0.2, begin=10.0)
    assert decide("threshold:stabilisation_s=0", calm).workers == 2
    assert decide("threshold:stabilisation_s=20", calm).workers is None
    assert decide("threshold:stabilisation_s=20", busy, calm).workers == 6


def test_dhalion_resolves_back_pressure_by_the_share_that_was_not_handled():
    pressed = interval(4, 10000.0, useful=1.0, backlog=60000.0, before=0.0)
    found = decide("dhalion", pressed)
    assert found.workers == 10
    assert "grows" in found.reason
    assert decide("dhalion", interval(4, 3000.0, useful=1.0, backlog=60000.0, before=70000.0)).workers is None
    skewed = Interval(0.0, 10.0, 4, 10000.0, (10000.0, 0, 0, 0), (10.0, 0, 0, 0), 60000.0, 0.0)
    assert "rebalance" in decide("dhalion", skewed).reason


def test_dhalion_takes_workers_away_after_a_calm_time_and_not_again_what_was_wrong():
    calm = [interval(10, 5000.0, begin=10.0 * i) for i in range(6)]
    assert decide("dhalion", *calm[:5]).workers is None
    assert decide("dhalion", *calm).workers == 8
    wrong = (Rescaled(-200.0, 10, 8, 5000.0), Rescaled(-100.0, 8, 10, 5000.0))
    assert decide("dhalion", *calm, past=wrong).workers is None
    higher = (Rescaled(-200.0, 10, 8, 9000.0), Rescaled(-100.0, 8, 10, 9000.0))
    assert decide("dhalion", *calm, past=higher).workers == 8, "it was another load"


def test_policies_come_to_the_right_number_after_a_step_each_in_its_way():
    taken = {}
    for policy in ("ds2", "threshold:stabilisation_s=60", "dhalion"):
        query = IdealQuery(policy)
        query.run(760.0, 3)
        query.run(3800.0, 60)
        taken[policy.partition(":")[0]] = query.rescales
        assert query.workers >= 4, query.decided
        assert query.backlog == 0
    assert taken["ds2"] == [(1, 5)]
    assert len(taken["threshold"]) > 2, "nobody is busy for more than all of the time"
