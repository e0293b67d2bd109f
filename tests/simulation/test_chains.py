"""Chains of two and three queries under faults, simulated: each window has its one right result, whatever happens."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from chains.parameters import SHAPES, draw
from chains.runs import simulate
from chaos.outcome import assert_one_digest


@pytest.mark.sampled(10)
@pytest.mark.parametrize("seed", range(60))
def test_nothing_goes_wrong_in_a_chain_under_faults(seed):
    outcome = simulate(draw(seed))
    assert outcome.violation is None, outcome.sentence


@pytest.mark.parametrize(
    ("seed", "shape"), [(42, "windows"), (44, "windows"), (53, "windows"), (406, "windows"), (47, "processor")]
)
def test_a_window_has_one_row_where_records_are_late_and_sessions_end_within_an_epoch(seed, shape):
    """In each of these a worker forgot up to where it had run timers, and took a late record."""
    outcome = simulate(draw(seed, shape=shape))
    assert outcome.violation is None, outcome.sentence


@pytest.mark.lengthy
def test_two_runs_of_a_chain_give_one_digest():
    assert_one_digest(lambda number: simulate(draw(number)), 5)


def test_every_shape_is_drawn_and_all_queries_move_bins_in_most_chains():
    drawn = [draw(seed) for seed in range(60)]
    assert sum(all(own.commands for own in p.stages) for p in drawn) > 35
    assert {tuple((own.runs, own.inputs) for own in p.stages) for p in drawn} == set(SHAPES.values())
    assert {p.stages[-1].partitions for p in drawn} == {1, 2, 3, 4, 6}
