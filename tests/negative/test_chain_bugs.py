"""Bugs planted between two queries: simulated chains find them."""

import sys
from collections import deque
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "simulation"))

import planted
from chains.parameters import StageParameters, draw
from chains.runs import simulate

from impls.driver import milestones
from impls.driver.milestones import Milestones
from impls.protocol.eventtime import EventClock
from impls.store.numbers import Numbers
from impls.worker import commit

SEEDS = 200


def repeats_taken_for_new_results(patch):
    patch.setattr(Numbers, "new", lambda _, table: table)


def a_milestone_before_the_timers_have_run(patch):
    patch.setattr(EventClock, "sent", property(lambda self: self.watermark))


def a_milestone_that_does_not_wait_for_bins_that_move(patch):
    patch.setattr(EventClock, "sent", property(lambda self: self._last[1]))


def bins_that_wait_not_reported(patch):
    plain = commit._whole_report
    patch.setattr(commit, "_whole_report", lambda env, task, report, _: plain(env, task, report, ()))


def a_milestone_that_is_reached_before_it_is_read(patch):
    plain = Milestones.reached

    def reached(self, read):
        return plain(self, {place: 1 << 40 for _, ends in self._milestones for place in ends})

    patch.setattr(Milestones, "reached", reached)


def the_oldest_milestone_given_up(patch):
    plain = Milestones.add

    def add(self, time, ends):
        plain(self, time, ends)
        self._milestones = deque([(time, self._milestones[0][1])])

    patch.setattr(Milestones, "add", add)


def a_watermark_of_the_input_that_is_ahead(patch):
    patch.setattr(milestones, "min", max, raising=False)


def a_watermark_by_the_results_own_times(patch):
    plain = StageParameters.make_controller

    def make_controller(self):
        controller = plain(self)
        controller.clock._linked = False
        return controller

    patch.setattr(StageParameters, "make_controller", make_controller)


def a_record_taken_for_a_window_that_has_closed(patch):
    patch.setattr(commit, "_clock", lambda task, *_, **__: task.order.written.clock)


def a_milestone_between_two_whole_ms(patch):
    patch.setattr(EventClock, "_rise", lambda self, now: setattr(self, "watermark", max(now, self.watermark or now)))


def a_result_at_the_milestone_forgotten(patch):
    plain = EventClock.reach
    patch.setattr(EventClock, "reach", lambda self, time: plain(self, time + self._event_time.as_spark))


BUGS = {
    repeats_taken_for_new_results: {"offsets", "once", "results", "reports"},
    a_milestone_before_the_timers_have_run: {"results"},
    a_milestone_that_does_not_wait_for_bins_that_move: {"results"},
    bins_that_wait_not_reported: {"results"},
    a_milestone_that_is_reached_before_it_is_read: {"results"},
    the_oldest_milestone_given_up: {"results"},
    a_watermark_of_the_input_that_is_ahead: {"results"},
    a_watermark_by_the_results_own_times: {"results"},
    a_record_taken_for_a_window_that_has_closed: {"results", "windows"},
    a_milestone_between_two_whole_ms: {"results"},
    a_result_at_the_milestone_forgotten: {"results"},
}


SHAPES = {
    a_record_taken_for_a_window_that_has_closed: "windows",
    a_milestone_between_two_whole_ms: "windows",
    a_result_at_the_milestone_forgotten: "each",
}


@pytest.mark.parametrize("plant", BUGS, ids=lambda plant: plant.__name__)
def test_a_bug_planted_between_two_queries_is_found(plant):
    planted.find(plant, lambda seed: simulate(draw(seed, shape=SHAPES.get(plant))), BUGS[plant], SEEDS)
