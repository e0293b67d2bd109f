"""Migration schedules: Megaphone's pattern, rescales, plan files and what is wrong with them."""

import numpy as np
import pytest

from harness.experiment.description import Experiment
from harness.experiment.schedules import megaphone_pattern, plan_for, read_plan_file
from impls.errors import UsageError
from impls.placement import initial


@pytest.mark.parametrize("workers", [2, 4, 8, 16])
def test_the_pattern_moves_a_quarter_there_and_back(workers):
    there, back = plan_for(Experiment(workers=workers, workers_goal=workers, duration_s=30, lead_in_s=5))
    start = initial(256, workers)
    skewed = there.goal(start)
    assert (skewed != start).sum() == 64
    assert set(start[skewed != start].tolist()) == set(range(workers // 2))
    assert np.array_equal(back.goal(skewed), start)
    assert (there.at_s, back.at_s) == (15, 25)


def test_the_pattern_of_an_odd_number_of_workers_stays_among_them():
    assert megaphone_pattern(initial(16, 3), 3).max() == 2


@pytest.mark.parametrize(("before", "after"), [(2, 4), (4, 2), (4, 8)])
def test_a_rescale_is_one_command(before, after):
    (step,) = plan_for(Experiment(workers=before, workers_goal=after, migration="rescale"))
    assert np.bincount(step.goal(initial(256, before))).tolist() == [256 // after] * after


def test_a_rebalance_asks_the_policy_with_what_was_measured():
    (step,) = plan_for(Experiment(policy="load_aware", migration="rebalance"))
    rates = np.ones(256)
    assert np.array_equal(step.goal(initial(256, 4), rates), initial(256, 4))
    rates[0] = 100
    assert (step.goal(initial(256, 4), rates, None) != initial(256, 4)).any()


def test_the_pattern_begins_where_the_policy_does():
    there, back = plan_for(Experiment(policy="consistent_hashing"))
    start = initial(256, 4, "consistent_hashing")
    assert np.array_equal(back.goal(start), start)
    assert (there.goal(start) != start).any()


def test_a_plan_file_joins_lines_of_one_time(tmp_path):
    path = tmp_path / "plan"
    path.write_text("# first\n1 move 0 1\n1 move 1 1 # same\n\n2.5 map 1 1 0 0\n")
    one, two = read_plan_file(path, 4, 2)
    assert (one.at_s, two.at_s) == (1, 2.5)
    assert one.goal(initial(4, 2)).tolist() == [1, 1, 1, 1]
    assert two.goal(initial(4, 2)).tolist() == [1, 1, 0, 0]


@pytest.mark.parametrize(
    "line",
    ["soon move 0 1", "nan move 0 1", "inf move 0 1", "-1 move 0 1", "1", "1 jump 0 1", "1 move 0", "1 move 4 0",
     "1 move -1 0", "1 move 0 9", "1 map 0 1", "1 map 0 0 0 9", "1 move x 1", "0.1 move 0 1"],
)  # fmt: skip
def test_a_bad_line_is_named(tmp_path, line):
    path = tmp_path / "plan"
    path.write_text(f"0.5 move 0 1\n{line}\n")
    with pytest.raises(UsageError, match="line 2"):
        read_plan_file(path, 4, 2)


@pytest.mark.parametrize("content", [None, b"", b"# nothing\n", b"\xff\xfe"])
def test_a_file_without_a_plan_is_refused(tmp_path, content):
    path = tmp_path / "plan"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError, match="plan"):
        read_plan_file(path, 4, 2)
