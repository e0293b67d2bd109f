"""Which bins a worker pulls in an epoch: by need, within the budget, with progress."""

import numpy as np
import pytest

from impls.protocol.plan import EpochPlan, Pull
from impls.worker.pull import on_demand, within_budget

PULLS = [Pull(b, 0, 1) for b in range(5)]
SIZES = dict.fromkeys(range(5), 100)


def plan(budget, background=None):
    return EpochPlan(np.zeros(5, np.int32), tuple(PULLS), budget, on_demand=True, background_bytes=background)


@pytest.mark.parametrize(("budget", "bins"), [(None, 5), (0, 1), (99, 1), (250, 2), (500, 5)])
def test_planned_pulls_keep_their_order_and_the_budget(budget, bins):
    assert within_budget(PULLS, SIZES, budget) == PULLS[:bins]


@pytest.mark.parametrize(
    ("budget", "background", "need", "bins"),
    [
        (None, None, {}, [0, 1, 2, 3, 4]),
        (300, None, {3: 1, 2: 9}, [2, 3, 0]),
        (300, 0, {3: 1, 2: 9}, [2, 3]),
        (300, 0, {}, [0]),
        (100, None, {3: 1, 2: 9}, [2]),
        (0, 0, {4: 1}, [4]),
        (1000, 150, {4: 1}, [4, 0]),
        (350, 50, {4: 1}, [4]),
    ],
)
def test_what_is_needed_most_comes_first_and_the_background_keeps_its_share(budget, background, need, bins):
    assert [pull.bin for pull in on_demand(PULLS, need, SIZES, plan(budget, background))] == bins
