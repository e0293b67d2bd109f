"""Forty simulated queries under faults: nothing is lost, doubled, out of order or stuck, and a seed is one run."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from chaos.outcome import assert_one_digest
from chaos.parameters import CASES, KINDS, SEEDS, draw
from chaos.query import simulate

# a process that dies leaves its files to the system, an attempt that dies leaves them to the collector
pytestmark = pytest.mark.filterwarnings("ignore:Exception ignored in.*writer:pytest.PytestUnraisableExceptionWarning")


@pytest.mark.sampled(10)
@pytest.mark.parametrize(("seed", "fixed"), CASES)
def test_nothing_goes_wrong_under_faults(seed, fixed):
    outcome = simulate(draw(seed, **fixed))
    assert outcome.violation is None, outcome.sentence


@pytest.mark.capability
@pytest.mark.parametrize("seed", [3, 1234])
def test_two_runs_of_a_seed_give_one_digest(seed):
    assert_one_digest(lambda number: simulate(draw(number)), seed)


def test_every_kind_of_fault_is_drawn():
    assert {fault.kind for seed in SEEDS for fault in draw(seed).faults} == set(KINDS)
