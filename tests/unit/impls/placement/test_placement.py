"""Placement policies, migration schedules and the catalog."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.experiment.description import Experiment
from harness.experiment.make import make_experiment
from harness.experiment.schedules import megaphone_pattern, plan_for
from harness.options import parse_number
from impls import catalog
from impls.errors import UsageError
from impls.placement import goal, initial


@pytest.mark.parametrize("policy", ["contiguous", "minimal_move"])
@given(bits=st.integers(1, 8), before=st.integers(1, 9), after=st.integers(1, 9), seed=st.integers(0, 99))
def test_policies_that_count_bins_are_balanced_and_deterministic(policy, bits, before, after, seed):
    bins = 2**bits
    after = min(after, bins)
    current = np.random.default_rng(seed).integers(0, before, bins).astype(np.int32)
    first, second = goal(policy, current, after), goal(policy, current, after)
    counts = np.bincount(first, minlength=after)
    assert len(counts) == after
    assert counts.max() - counts.min() <= 1
    assert np.array_equal(first, second)


@given(bits=st.integers(1, 8), before=st.integers(1, 9), after=st.integers(1, 9), seed=st.integers(0, 99))
def test_minimal_move_moves_the_least(bits, before, after, seed):
    bins = 2**bits
    after = min(after, bins)
    current = np.random.default_rng(seed).integers(0, before, bins).astype(np.int32)
    owned = np.sort(np.bincount(current[current < after], minlength=after))[::-1]
    share = np.full(after, bins // after)
    share[: bins % after] += 1
    least = bins - np.minimum(owned, share).sum()
    assert (goal("minimal_move", current, after) != current).sum() == least


def test_contiguous_ranges_ascend():
    assert initial(8, 3).tolist() == [0, 0, 0, 1, 1, 1, 2, 2]


def test_megaphones_pattern_moves_a_quarter_between_fixed_pairs():
    start = initial(256, 4)
    moved = megaphone_pattern(start, 4)
    pairs = {(int(a), int(b)) for a, b in zip(start, moved, strict=True) if a != b}
    assert (start != moved).sum() == 64
    assert pairs == {(0, 2), (1, 3)}


def test_the_pattern_goes_back_at_two_thirds():
    steps = plan_for(Experiment(duration_s=30.0, lead_in_s=6.0))
    start = initial(256, 4)
    assert [step.at_s for step in steps] == [16.0, 26.0]
    assert np.array_equal(steps[1].goal(steps[0].goal(start)), start)


def test_a_plan_file_is_read(tmp_path):
    path = tmp_path / "my.plan"
    path.write_text("# two commands\n5 move 3 1\n5 move 4 1\n9.5 map " + "0 " * 8 + "\n")
    steps = plan_for(Experiment(migration=str(path), bins=8, workers=2, workers_goal=2))
    assert [step.at_s for step in steps] == [5.0, 9.5]
    first = steps[0].goal(np.zeros(8, np.int32))
    assert np.flatnonzero(first).tolist() == [3, 4]
    assert not steps[1].goal(first).any()


@pytest.mark.parametrize(("text", "value"), [("4M", 4_000_000), ("4e6", 4_000_000), ("12", 12), ("2.5k", 2500)])
def test_numbers_may_have_suffixes(text, value):
    assert parse_number(text, "It") == value


def test_a_rescale_is_meant_when_two_worker_counts_are_given():
    experiment = make_experiment(workers="2:4", mechanism="megaphone-batched")
    assert (experiment.workers, experiment.workers_goal, experiment.migration) == (2, 4, "rescale")


def test_rounds_are_interleaved_and_their_order_drawn_from_the_seed():
    experiment = make_experiment(rounds=4, seed=3)
    runs = experiment.runs()
    assert [run.number for run in runs] == list(range(20))
    assert all({run.mechanism for run in runs[i : i + 5]} == set(experiment.mechanisms) for i in range(0, 20, 5))
    assert [r.folder for r in runs] == [r.folder for r in make_experiment(rounds=4, seed=3).runs()]
    assert [r.mechanism for r in runs[5:10]] != [r.mechanism for r in runs[10:15]]


def test_the_catalog_names_what_it_knows():
    assert {"none", "runtime-restart", "megaphone-fluid"} <= set(catalog.names())
    assert catalog.options("megaphone-batched") == {
        "bins_per_pair": 4, "gap_epochs": 0, "bytes_per_pair": 524288, "small_bytes": 8192
    }  # fmt: skip
    with pytest.raises(
        UsageError, match="has no option 'speed': it takes bins_per_pair, gap_epochs, bytes_per_pair, small_bytes"
    ):
        catalog.make("megaphone-batched", speed=3)
    with pytest.raises(UsageError, match="must be of type int"):
        catalog.make("megaphone-batched", gap_epochs="3")
