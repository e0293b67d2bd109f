"""Bugs planted in store and controller: the state machines of tests/property see each of them."""

import pytest
import store_machine
from controller_machine import ControllerMachine
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from store_machine import StoreMachine

from impls.errors import StateError
from impls.protocol import controller
from impls.protocol.controller import Controller
from impls.store import bins, state
from impls.store.tables import SIZE, bin_key

# One example in about a hundred finds a bug, and the search ends with the first. Which one it is depends on what the
# process has loaded, as Hypothesis also draws the constants of modules: 300 examples were too few in one run of thirty.
SEARCH = settings(max_examples=5000, stateful_step_count=20, derandomize=True, database=None, phases=[Phase.generate],
                  report_multiple_bugs=False)  # fmt: skip
drop_bin, restore, observe = bins.drop_bin, Controller.restore, Controller.observe


def whole_drops_only(txn, bin_, *, whole=False):
    if whole:
        drop_bin(txn, bin_, whole=True)


def restore_without(name):
    return lambda self, data: restore(self, {**data, name: []})


def observe_again(self, seen):
    self.observed -= seen.epoch == self.observed
    return observe(self, seen)


BUGS = {
    "what stands where a bin comes is kept": (StoreMachine, bins, "drop_bin", whole_drops_only),
    "packs are not looked into": (StoreMachine, state, "unpack", lambda _txn, _names: False),
    "a drop in pieces is not recorded": (
        StoreMachine, store_machine, "begin_drop", lambda txn, bin_: txn.delete(bin_key(SIZE, bin_)),
    ),
    "a base forgets the drops": (ControllerMachine, Controller, "restore", restore_without("drops")),
    "a base forgets the commands that wait": (ControllerMachine, Controller, "restore", restore_without("pending")),
    "an epoch observed twice counts twice": (ControllerMachine, Controller, "observe", observe_again),
    "a bin comes back before its old copy is dropped": (
        ControllerMachine, controller, "drops_within_budget", lambda pending, pulls, _: [] if pulls else list(pending),
    ),
}  # fmt: skip


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug, monkeypatch):
    machine, where, name, planted = BUGS[bug]
    monkeypatch.setattr(where, name, planted)
    with pytest.raises((AssertionError, StateError)):  # another error would be one of what is planted
        run_state_machine_as_test(machine, settings=SEARCH)
