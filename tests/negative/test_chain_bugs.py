"""Bugs planted between two queries: simulated chains find them."""

import sys
from collections import deque
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "simulation"))

import planted
from chains.parameters import StageParameters, draw
from chains.query import StageQuery
from chains.runs import simulate

from impls.driver import milestones
from impls.driver.milestones import Milestones
from impls.protocol.coordinator import Coordinator
from impls.protocol.eventtime import EventClock
from impls.protocol.session import Final
from impls.realtime.marks import Progress
from impls.store.numbers import Numbers
from impls.worker import commit
from impls.worker.worker import Worker

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
    patch.setattr(EventClock, "_whole", lambda _, time: time)


def a_result_at_the_milestone_forgotten(patch):
    plain = EventClock._behind
    patch.setattr(EventClock, "_behind", lambda self, time: plain(self, time + self._event_time.as_spark))


def a_watermark_told_before_all_are_final(patch):
    plain = Coordinator._risen

    def risen(self):
        finals, self._finals = self._finals, {w: Final(-1, w) for w in self._workers()} | self._finals
        try:
            return plain(self)
        finally:
            self._finals = finals

    patch.setattr(Coordinator, "_risen", risen)


def a_final_worker_that_has_not_applied_all(patch):
    patch.setattr(Progress, "reached", lambda self, _: self._marks is not None)


def a_watermark_forgotten_with_its_session(patch):
    plain = Worker._find_end

    def find_end(self):
        plain(self)
        if self._ended is not None:
            report, cells = self._ended
            self._ended = replace(report, event_time=replace(report.event_time, until=None)), cells

    patch.setattr(Worker, "_find_end", find_end)


def what_a_batch_has_read_forgotten(patch):
    plain = StageQuery.read

    def read(self, since):
        committed, self._committed = self._committed, [0] * len(self._committed)
        try:
            return plain(self, since)
        finally:
            self._committed = committed

    patch.setattr(StageQuery, "read", read)


def a_newest_milestone_given_up(patch):
    patch.setattr(milestones, "_MILESTONES_MOST", 1)
    patch.setattr(milestones, "deque", lambda some=(): deque([*some][::-1][1::2][::-1]))


BUGS = {
    what_a_batch_has_read_forgotten: {"goal"},
    a_newest_milestone_given_up: {"goal", "results"},
    repeats_taken_for_new_results: {"offsets", "once", "results", "reports"},
    a_milestone_before_the_timers_have_run: {"results"},
    a_milestone_that_does_not_wait_for_bins_that_move: {"results", "operator"},
    bins_that_wait_not_reported: {"results", "operator"},
    a_milestone_that_is_reached_before_it_is_read: {"results"},
    the_oldest_milestone_given_up: {"results"},
    a_watermark_of_the_input_that_is_ahead: {"results"},
    a_watermark_by_the_results_own_times: {"results"},
    a_record_taken_for_a_window_that_has_closed: {"results", "windows"},
    a_milestone_between_two_whole_ms: {"results"},
    a_result_at_the_milestone_forgotten: {"results"},
    a_watermark_told_before_all_are_final: {"results"},
    a_watermark_forgotten_with_its_session: {"windows"},
    a_final_worker_that_has_not_applied_all: {"results", "offsets", "restore", "reports"},
}


SHAPES = {
    a_record_taken_for_a_window_that_has_closed: "windows",
    a_milestone_between_two_whole_ms: "windows",
    a_watermark_forgotten_with_its_session: "windows",
    a_result_at_the_milestone_forgotten: "each",
}


@pytest.mark.parametrize("plant", BUGS, ids=lambda plant: plant.__name__)
def test_a_bug_planted_between_two_queries_is_found(plant):
    planted.find(plant, lambda seed: simulate(draw(seed, shape=SHAPES.get(plant))), BUGS[plant], SEEDS)
