"""Names, options and placement policies: what they give and what they refuse."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from impls import catalog
from impls.errors import UsageError
from impls.placement import goal, initial, policies


def test_the_mechanisms_are_found():
    expected = {"none", "runtime-restart", "megaphone-all-at-once", "megaphone-fluid", "megaphone-batched"}
    assert expected <= set(catalog.names())
    assert catalog.options("megaphone-batched") == {
        "bins_per_pair": 4, "gap_epochs": 0, "bytes_per_pair": 524288, "small_bytes": 8192
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("magic", {}, "megaphone-fluid"),
        ("none", {"speed": 9}, "no option 'speed'"),
        ("megaphone-batched", {"speed": 9}, "bins_per_pair"),
        ("megaphone-batched", {"bins_per_pair": 0}, "bins_per_pair"),
        ("megaphone-batched", {"bins_per_pair": 1.5}, "bins_per_pair"),
        ("megaphone-batched", {"gap_epochs": -1}, "gap_epochs"),
    ],
)
def test_unknown_names_and_options_are_one_sentence(name, options, says):
    with pytest.raises(UsageError, match=says):
        catalog.make(name, **options)


@pytest.mark.parametrize(
    ("policy", "bins", "workers", "says"),
    [("magic", 4, 2, "contiguous"), ("contiguous", 2, 4, "2 bins"), ("minimal_move", 4, 0, "1 worker")],
)
def test_a_goal_that_cannot_be_is_refused(policy, bins, workers, says):
    with pytest.raises(UsageError, match=says):
        goal(policy, np.zeros(bins, np.int32), workers)


@given(log_bins=st.integers(1, 9), old=st.integers(1, 12), workers=st.integers(1, 12), seed=st.integers(0, 2**32))
def test_minimal_move_is_balanced_and_moves_as_few_as_any_balanced_assignment_must(log_bins, old, workers, seed):
    bins = 2**log_bins
    workers = min(workers, bins)
    current = np.random.default_rng(seed).integers(0, old, bins).astype(np.int32)
    found = goal("minimal_move", current, workers)
    counts = np.bincount(found, minlength=workers)
    assert len(counts) == workers
    assert counts.max() - counts.min() <= 1
    owned = np.sort(np.bincount(current[current < workers], minlength=workers))[::-1]
    quota = bins // workers + (np.arange(workers) < bins % workers)
    assert (found != current).sum() == bins - np.minimum(owned, quota).sum()
    assert np.array_equal(found, goal("minimal_move", current, workers))


def test_a_retired_workers_bins_spread_over_all_others():
    found = goal("minimal_move", initial(64, 4), 3)
    assert set(found[initial(64, 4) == 3].tolist()) == {0, 1, 2}


@pytest.mark.parametrize("policy", list(policies()))
def test_a_policy_that_has_nothing_to_do_moves_nothing(policy):
    start = initial(64, 4, policy)
    assert np.array_equal(goal(policy, start, 4), start)
