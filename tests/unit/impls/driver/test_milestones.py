"""What goes between two queries: the second one's watermark follows what was read of the first one's results."""

from contextlib import nullcontext
from types import SimpleNamespace
from unittest.mock import patch

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from impls.driver import milestones as module
from impls.driver.milestones import Milestones, adding, follow
from impls.errors import StateError
from impls.protocol.eventtime import NO_TIME, EventClock, EventTime

BINS = 4
P, Q = ("r", 0), ("r", 1)


def clock(*, linked=False, disorder=0, **more):
    return EventClock(EventTime("at", disorder=disorder, **more), BINS, linked=linked)


def test_a_milestone_is_reached_when_all_before_its_offsets_is_read():
    milestones = Milestones()
    assert (milestones.reached({}), milestones.waiting) == (None, None)
    milestones.add(10, {P: 3, Q: 0})
    milestones.add(20, {P: 3, Q: 5})
    assert (milestones.reached({P: 2, Q: 9}), milestones.waiting) == (None, 20)
    assert (milestones.reached({P: 3}), milestones.waiting) == (10, 20)
    assert (milestones.reached({P: 3, Q: 5}), milestones.waiting) == (20, None)
    assert milestones.reached({}) == 20, "what was read is not read back"


def test_a_milestone_wakes_the_query_that_reads():
    milestones, woken = Milestones(), []
    milestones.wake = lambda: woken.append(1)
    milestones.add(1, {})
    assert woken == [1]


@given(st.lists(st.integers(0, 5), min_size=1, max_size=60), st.data())
@example([1] * 1025, None)
def test_however_many_milestones_wait_none_is_reached_too_early_and_the_last_one_is(steps, data):
    most = 1024 if data is None else data.draw(st.integers(2, 9))
    with patch.object(module, "_MILESTONES_MOST", most):
        reached_as_said(steps, data, most)


def reached_as_said(steps, data, most):
    milestones, end, marks = Milestones(), 0, []
    for time, step in enumerate(steps):
        end += step
        milestones.add(time, {P: end})
        marks.append((time, end))
    read = end // 2 if data is None else data.draw(st.integers(0, end))
    below = [time for time, at in marks if at <= read]
    at = milestones.reached({P: read})
    assert at is None or at in below
    assert len(milestones._milestones) <= most
    assert milestones.reached({P: end}) == len(steps) - 1


@pytest.fixture
def sender():
    return clock()


def ran(of, times, waits=()):
    of.hold(of.watermark, None)
    of.observe(times, waits)


def test_a_query_says_how_far_all_its_timers_have_run(sender):
    milestones, ends = Milestones(), {P: 0}
    add = adding(milestones, sender, lambda: dict(ends))
    ran(sender, [(0, 50)])  # the watermark comes with the next plan
    add(SimpleNamespace())
    assert milestones.waiting is None
    ran(sender, [(0, 70)], waits=[2])  # a bin is on its way
    add(SimpleNamespace())
    assert (sender.sent, milestones.waiting) == (None, None)
    ends[P] = 7
    ran(sender, [(0, 90)])
    add(SimpleNamespace())
    add(SimpleNamespace())  # nothing new
    assert (sender.sent, milestones.reached({P: 6}), milestones.reached({P: 7})) == (70, None, 70)


def test_a_broker_that_does_not_answer_is_asked_again(sender):
    milestones, answers = Milestones(), iter([StateError("It is away."), {P: 4}])

    def ends():
        found = next(answers)
        if isinstance(found, StateError):
            raise found
        return found

    add = adding(milestones, sender, ends)
    ran(sender, [(0, 50)])
    ran(sender, [])
    add(SimpleNamespace())
    assert milestones.waiting is None
    add(SimpleNamespace())
    assert milestones.reached({P: 4}) == 50


def test_the_watermark_of_a_linked_query_follows_the_milestone_alone_and_never_falls():
    linked = clock(linked=True, disorder=3)
    ran(linked, [(0, 900)])
    assert linked.watermark is None
    linked.reach(10)
    assert linked.watermark == 7
    linked.reach(5)
    ran(linked, [(0, 900)])
    assert (linked.watermark, linked.sent) == (7, 7)
    other = clock(linked=True, disorder=3)
    other.restore(linked.to_json())
    assert (other.watermark, other.sent) == (7, 7)
    assert clock().sent is None
    assert NO_TIME < 0


class Reader:
    """A driver as `follow` sees it, whose query reads results."""

    def __init__(self):
        self.controller = SimpleNamespace(clock=clock(linked=True))
        self.before_plan, self.waiting, self.coming, self.woken, self.last_epoch = [], [], [], [], 7

    def locked(self):
        return nullcontext(self.controller)

    def on_command(self):
        self.woken.append(1)

    def planned(self, epoch):
        for look in self.before_plan:
            look(epoch)
        return self.controller.clock.watermark


def test_the_watermark_of_a_query_that_reads_two_follows_the_one_that_is_behind():
    first, second, reader, read = Milestones(), Milestones(), Reader(), {}
    follow([first, second], reader, lambda epoch, since: {**read.get(epoch, {}), **since}, lambda _, part: [part])
    first.add(10, {P: 3})
    assert (reader.planned(1), reader.woken, [waiting() for waiting in reader.waiting]) == (None, [1], [10, None])
    read[1] = {P: 3}
    assert reader.planned(2) is None, "nobody knows of the second one"
    second.add(7, {Q: 1})
    read[2] = {P: 3, Q: 1}
    assert reader.planned(3) == 7
    second.add(30, {Q: 2})
    read[3] = {P: 3, Q: 2}
    assert (reader.planned(4), [waiting() for waiting in reader.waiting]) == (10, [None, None])


def test_within_an_epoch_what_all_workers_have_applied_counts_as_read_and_the_watermark_is_left_to_the_plan():
    milestones, reader = Milestones(), Reader()
    follow([milestones], reader, lambda epoch, since: {P: 2 if epoch == 7 else 0, **since}, lambda _, part: [part])
    milestones.add(10, {P: 3})
    assert reader.milestone({}) is None
    assert reader.milestone({P: 3}) == 10
    assert reader.controller.clock.watermark is None
    assert reader.controller.clock.risen([(0, 500)], 10) == 10, "results come in no order of their times"
    assert reader.planned(8) == 10, "what was read once is not read back"


def test_an_epoch_awaits_the_results_before_a_milestone_that_lets_a_timer_run():
    milestones, reader = Milestones(), Reader()
    follow([milestones], reader, lambda epoch, since: since, lambda topic, part: [part, 100 + part])
    assert reader.awaited(5) == {}
    milestones.add(10, {("results", 0): 3, ("results", 1): 8})
    assert (reader.awaited(11), reader.awaited(None)) == ({}, {})
    assert reader.awaited(10) == {0: 3, 100: 3, 1: 8, 101: 8}
    assert reader.milestone({("results", 0): 3, ("results", 1): 8}) == 10
    assert reader.awaited(10) == {}, "all of them were read"


def test_a_milestone_may_come_from_the_begin_of_an_epoch_until_it_is_told_also_where_the_broker_is_away():
    milestones, reader, sender = Milestones(), Reader(), clock()
    follow([milestones], reader, lambda epoch, since: since, lambda topic, part: [part])
    seen = []

    def ends():
        seen.append(reader.coming[0]())
        raise StateError("It is away.")

    add = adding(milestones, sender, ends)
    assert not reader.coming[0]()
    for watermark in (None, 5):
        sender.hold(watermark, None)
        sender.observe([], [])
        milestones.expect(0)
        assert reader.coming[0]()
        add(SimpleNamespace())
        assert not reader.coming[0]()
    assert seen == [True]
