"""The times that plans record: processing time never falls, and a plan tells what the epoch before was about."""

import json

import numpy as np

from impls import catalog
from impls.protocol.controller import Controller
from impls.protocol.eventtime import EpochClock, EventClock, EventTime
from impls.protocol.plan import WrittenPlan
from impls.protocol.view import Observation
from impls.spark.realtime.start import Haste

BINS = 4


def controller(time: EventTime) -> Controller:
    return Controller(np.zeros(BINS, np.int32), catalog.make("none"), EventClock(time, BINS))


def observed(epoch: int, **more) -> Observation:
    return Observation(epoch, **more)


def test_a_plan_records_processing_time_and_what_the_epoch_before_left_out():
    known = controller(EventTime("at", disorder=5, of_all=True, clock=True))
    first = known.plan(0, 1, now_ms=100)
    assert first.clock == EpochClock(100)
    known.observe(observed(0, times=[(0, 50), (1, 20)], waits=[2]))
    second = known.plan(1, 1, now_ms=90)
    assert second.watermark == 45  # of the highest of all partitions
    assert second.clock == EpochClock(100, 100, None, (2,))
    known.observe(observed(1))
    assert known.plan(2, 1, now_ms=300).clock == EpochClock(300, 100, 45, sent=45)
    assert WrittenPlan.from_json(json.loads(json.dumps(second.to_json()))).clock == second.clock


def test_a_driver_that_starts_again_goes_on_with_the_times():
    time = EventTime("at", of_all=True, clock=True)
    known, again, adopting = controller(time), controller(time), controller(time)
    plan = known.plan(0, 1, now_ms=100)
    seen = observed(0, times=[(0, 50)], waits=[1])
    known.observe(seen)
    again.restore(json.loads(json.dumps(known.to_json())))
    adopting.adopt(plan)
    adopting.observe(seen)
    assert known.plan(1, 2, now_ms=7).clock == again.plan(1, 2, now_ms=7).clock == EpochClock(100, 100, None, (1,))
    assert adopting.plan(1, 2, now_ms=7).clock == EpochClock(100, 100, None, (1,))


def test_other_operators_have_no_times_in_their_plans():
    plan = controller(EventTime("at")).plan(0, 1, now_ms=100)
    assert plan.clock is None
    assert "clock" not in plan.to_json()


def test_an_epoch_for_a_timer_that_the_watermark_or_the_input_has_reached_is_not_waited_for():
    known, now, timers = controller(EventTime("at")), [5.0], [(False, None)]
    haste = Haste(known, lambda: timers[0], lambda: now[0])
    for epoch, (seen, due) in enumerate([(50, 60), (70, 60), (71, 60)]):
        known.plan(epoch, 1)
        known.observe(observed(epoch, times=[(0, seen)]))
        timers[0] = (False, due)
        assert haste.begins() == (seen == 70), "the last epoch has run it, or could not"
    timers[0] = (True, 80)
    assert haste.begins()
    now[0] += 0.05
    assert [haste.begins() for _ in range(3)] == [True, True, False], "timers get four epochs of a second"
    now[0] += 0.9
    assert not haste.begins()
    now[0] += 0.06
    assert haste.begins()


def test_an_epoch_for_a_milestone_is_not_waited_for_where_it_lets_a_timer_run():
    known, now, waiting = controller(EventTime("at", disorder=5)), [5.0], [None, 64]
    haste = Haste(known, lambda: (False, 60), lambda: now[0], milestones=lambda: waiting)
    assert not haste.begins(), "the watermark comes to 59"
    waiting[0] = 65
    assert haste.begins()
    now[0] += 1
    assert not Haste(known, lambda: (False, None), lambda: now[0], milestones=lambda: waiting).begins(), (
        "no timer is set"
    )


def test_no_epoch_begins_by_itself_while_one_runs_that_may_bring_a_milestone():
    comes = [False]
    haste = Haste(controller(EventTime("at")), milestones_come=lambda: comes[0])
    assert haste.quiet_s() == 0.2
    comes[0] = True
    assert haste.quiet_s() == 1


def test_results_are_promised_up_to_where_the_timers_of_all_bins_have_run():
    known = controller(EventTime.of_spark("at"))
    for epoch, waits in enumerate(([], [], [3], [3], [])):
        plan = known.plan(epoch, 1, now_ms=100)
        known.observe(observed(epoch, times=[(0, 5_400 + 2_000 * epoch)], waits=waits))
        watermark, sent = plan.watermark, plan.clock.sent
        want = (None, None, 5_000, 5_000, 5_000)[epoch]
        assert sent == want, f"epoch {epoch} has the watermark {watermark}, and bin 3 waits from the third one on"
    assert known.plan(5, 1, now_ms=100).clock.sent == known.clock.sent == 11_000  # whole ms of the epoch before
    assert known.clock.below == 11_001  # a result at 11,000 is late for who goes by it


def test_who_reads_results_as_spark_does_takes_one_at_the_milestone_still():
    plain, as_spark = EventClock(EventTime("at"), 4, linked=True), EventClock(EventTime.of_spark("at"), 4, linked=True)
    for clock in (plain, as_spark):
        clock.reach(7_000)
    assert (plain.watermark, as_spark.watermark) == (7_000, 6_000)


def test_a_watermark_that_has_risen_within_an_epoch_holds_behind_it():
    known = controller(EventTime("at", disorder=5, clock=True))
    again = controller(EventTime("at", disorder=5, clock=True))
    for epoch, (times, until, waits) in enumerate([([(0, 50)], None, []), ([(0, 95)], 80, [1]), ([], None, [])]):
        plan = known.plan(epoch, 1, now_ms=100)
        if epoch == 1:
            assert known.clock.risen([(0, 85)]) == 80
            assert (plan.watermark, known.clock.watermark) == (45, 45), "it is told, and kept nowhere"
        seen = observed(epoch, times=times, until=until, waits=waits)
        seen = Observation.from_json(json.loads(json.dumps(seen.to_json())))
        known.observe(seen)
        again.adopt(plan)
        again.observe(seen)
        assert again.to_json() == known.to_json()
        after = (known.clock.watermark, known.clock.sent, known.clock.at(100).late)
        assert after == [(45, None, None), (90, None, 80), (90, 90, 90)][epoch], "bin 1 waits"


def test_timers_that_ran_further_than_a_driver_knows_of_the_input_are_not_run_back():
    known = controller(EventTime("at"))
    known.plan(0, 1)
    known.observe(observed(0, times=[(0, 50)], until=70))
    assert (known.clock.watermark, known.clock.sent) == (70, 70)
