"""Subscales: which are begun, and what is under way keeps its place."""

from dataclasses import replace

import numpy as np
import pytest

from impls import catalog
from impls.errors import UsageError
from impls.protocol.view import View


@pytest.mark.parametrize("option", ["subscale_bins", "pull_budget_bytes", "concurrent"])
def test_an_option_below_its_least_is_refused(option):
    with pytest.raises(UsageError, match=option):
        catalog.make("drrs", **{option: -1})


def test_workers_that_own_nothing_come_first():
    routing = np.repeat(np.array([0, 1], np.int32), 16)
    goal = np.repeat(np.array([1, 2], np.int32), 16)
    plan = catalog.make("drrs", subscale_bins=16, concurrent=1).plan(View.make(routing, goal))
    assert {(pull.source, pull.target) for pull in plan.pulls} == {(1, 2)}


def test_a_subscale_under_way_keeps_others_out_until_its_last_bin_has_come():
    routing, goal = np.zeros(32, np.int32), np.ones(32, np.int32)
    mechanism = catalog.make("drrs", subscale_bins=8, concurrent=1)
    view = View.make(routing, goal)
    first = {pull.bin for pull in mechanism.plan(view).pulls}
    assert len(first) == 8
    routed, [last, *came] = routing.copy(), sorted(first)
    routed[list(first)] = 1
    location = routing.copy()
    location[came] = 1
    half_way = replace(view, routing=routed, location=location)
    assert {pull.bin for pull in mechanism.plan(half_way).pulls} == {last}
    location[last] = 1
    assert len(mechanism.plan(replace(half_way, location=location)).pulls) == 8
