"""Plans that break a rule are refused by the rule's name."""

from dataclasses import replace

import numpy as np
import pytest

from impls.errors import InvalidPlanError
from impls.protocol.plan import EpochPlan, Pull, validate
from impls.protocol.replicas import Copies
from impls.protocol.view import View

ROUTING = np.array([0, 0, 1, 1], np.int32)
GOAL = np.array([2, 0, 1, 1], np.int32)
VIEW = View.make(ROUTING, GOAL)
MOVED = GOAL.copy()
PULL = Pull(0, 0, 2)
GOOD = EpochPlan(MOVED, (PULL,))


def queued(bin_: int) -> View:
    lengths = np.zeros(4, np.int64)
    lengths[bin_] = 3
    return replace(VIEW, queued=lengths)


def apart() -> View:
    """Bin 0 is already routed to 2, its state still at 0."""
    return replace(VIEW, routing=MOVED)


CASES = {
    "routing: it must": (EpochPlan(MOVED.astype(np.int64), (PULL,)), VIEW),
    "routing: it must be": (EpochPlan(MOVED[:3], (PULL,)), VIEW),
    "routing: bin 3 has no worker": (EpochPlan(np.array([2, 0, 1, 9], np.int32), (PULL,)), VIEW),
    "routing: bin 1 has no worker": (EpochPlan(np.array([2, -1, 1, 1], np.int32), (PULL,)), VIEW),
    "pull: bin 0 is named twice": (EpochPlan(MOVED, (PULL, PULL)), VIEW),
    "pull: bin 9 does not exist": (EpochPlan(MOVED, (Pull(9, 0, 2),)), VIEW),
    "pull: bin 0 is pulled from worker 1": (EpochPlan(MOVED, (Pull(0, 1, 2),)), VIEW),
    "pull: bin 0 is pulled to worker 1": (EpochPlan(MOVED, (Pull(0, 0, 1),)), VIEW),
    "pull: bin 1 is pulled to where it is": (EpochPlan(MOVED, (PULL, Pull(1, 0, 0))), VIEW),
    "queue: bin 0": (GOOD, queued(0)),
    "reroute: bin 0": (EpochPlan(np.array([1, 0, 1, 1], np.int32), (Pull(0, 0, 1),)), apart()),
    "state: bin 0": (EpochPlan(MOVED), VIEW),
    "budget": (replace(GOOD, budget_bytes=-1), VIEW),
    "hold: bin 4 does not exist": (replace(GOOD, hold=(4,)), VIEW),
    "hold: bin 1 is named twice": (replace(GOOD, hold=(1, 1)), VIEW),
    "replica: bin 1 names its own owner": (replace(GOOD, copies=Copies(((1, 0),))), VIEW),
    "replica: a pair of bin and worker is named twice": (replace(GOOD, copies=Copies(((1, 2), (1, 2)))), VIEW),
    "replica: bin 0 is pulled from a replica": (replace(GOOD, from_replica=True), VIEW),
    "standby: bin 1 names worker 7": (
        replace(GOOD, copies=Copies(standbys=((1, 7),))),
        replace(VIEW, replicas={(1, 7): 0}),
    ),
    "standby: bin 1 is processed twice by a worker without": (replace(GOOD, copies=Copies(standbys=((1, 2),))), VIEW),
    "standby: bin 0 is processed twice but not": (
        EpochPlan(MOVED, hold=(0,), copies=Copies(standbys=((0, 1),))),
        replace(VIEW, replicas={(0, 1): 0}),
    ),
    "budget: -1 background": (replace(GOOD, on_demand=True, background_bytes=-1), VIEW),
    "stop: 'reboot' is unknown": (EpochPlan(ROUTING, stop="reboot"), VIEW),
    "stop: a plan that stops": (replace(GOOD, stop="query"), VIEW),
    "stop: a plan that stops may": (EpochPlan(ROUTING, stop="query", from_checkpoint=True), VIEW),
    "stop: the query was stopped before epoch 1": (EpochPlan(ROUTING, stop="query"), replace(VIEW, stopped=1)),
    "stop: bin 0 is rerouted": (EpochPlan(MOVED, stop="query"), VIEW),
}


@pytest.mark.parametrize("rule", CASES)
def test_a_broken_rule_is_named(rule):
    plan, view = CASES[rule]
    with pytest.raises(InvalidPlanError, match=f"rule {rule}"):
        validate(plan, view)


@pytest.mark.parametrize(
    ("plan", "view"),
    [
        (GOOD, VIEW),
        (EpochPlan(ROUTING), VIEW),
        (EpochPlan(ROUTING, stop="query"), VIEW),
        (EpochPlan(ROUTING, stop="query"), replace(VIEW, stopped=0)),
        (replace(GOOD, from_checkpoint=True), VIEW),
        (EpochPlan(MOVED, hold=(0,)), VIEW),
        (EpochPlan(MOVED, on_demand=True), VIEW),
        (EpochPlan(MOVED, (PULL,), budget_bytes=0), apart()),
        (EpochPlan(MOVED, (PULL,), copies=Copies(((1, 2),), ((2, 0),))), replace(VIEW, replicas={(2, 0): 0})),
        (replace(GOOD, from_replica=True), replace(VIEW, replicas={(0, 2): 0})),
    ],
)
def test_a_plan_within_the_rules_passes(plan, view):
    validate(plan, view)
