"""Bugs planted in autoscaling: the simulation, in which a policy rescales the query and drivers die, finds each."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "simulation"))

from chaos.parameters import draw
from chaos.query import simulate
from planted import find

from impls.autoscale.loop import Autoscaler
from impls.protocol.controller import Controller

pytestmark = pytest.mark.filterwarnings("ignore:Exception ignored in.*writer:pytest.PytestUnraisableExceptionWarning")
SEEDS = 200
DYING = {"kinds": {"driver": 1}, "faults": 4, "autoscale": "ds2:catch_up_s=5", "mechanism": "megaphone-all-at-once"}


def rescales_of_earlier_drivers_forgotten(patch):
    original = Autoscaler.__init__
    patch.setattr(Autoscaler, "__init__", lambda self, settings, _past=(): original(self, settings))


def bounds_not_kept(patch):
    patch.setattr(Autoscaler, "_bounded", lambda _self, found, _workers: replace(found, workers=found.workers))


def cool_down_not_kept(patch):
    original = Autoscaler.decide

    def decide(self, interval):
        past, self._past = self._past, type(self._past)()
        decided = original(self, interval)
        self._past.extendleft(reversed(past))
        return decided

    patch.setattr(Autoscaler, "decide", decide)


def commands_of_a_policy_not_taken(patch):
    original = Controller.accept

    def accept(self, command):
        if command.label != "autoscale":
            original(self, command)

    patch.setattr(Controller, "accept", accept)


BUGS = {
    rescales_of_earlier_drivers_forgotten: {"autoscale"},
    bounds_not_kept: {"autoscale", "driver"},
    cool_down_not_kept: {"autoscale"},
    commands_of_a_policy_not_taken: {"goal"},
}


@pytest.mark.parametrize("plant", BUGS, ids=lambda plant: plant.__name__)
def test_a_bug_planted_in_autoscaling_is_found(plant):
    find(plant, lambda seed: simulate(draw(seed, durability="process", changes=(), **DYING)), BUGS[plant], SEEDS)
