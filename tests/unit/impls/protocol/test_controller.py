"""The controller: events in, plans out; what it derives, when commands hold, and how it comes back after a crash."""

import json

import numpy as np
import pytest

from impls import catalog
from impls.errors import InvalidPlanError, StateError
from impls.protocol.controller import Controller
from impls.protocol.events import Command, MigrationBegun, MigrationDone
from impls.protocol.mechanism import Mechanism
from impls.protocol.plan import EpochPlan, Pull, WrittenPlan
from impls.protocol.view import Observation

START = np.array([0, 0, 1, 1], np.int32)
AWAY = np.array([3, 0, 1, 1], np.int32)


def command(goal, from_epoch=1, name="c"):
    return Command(name, "rebalance", np.array(goal, np.int32), name, from_epoch)


def started(mechanism="megaphone-all-at-once"):
    controller = Controller(START, catalog.make(mechanism))
    controller.plan(0, 1)
    controller.observe(Observation(0))
    return controller


def test_between_migrations_the_routing_is_repeated():
    controller = started()
    written = controller.plan(1, 1)
    assert np.array_equal(written.plan.routing, START)
    assert (written.workers, written.plan.pulls, written.drops, written.migrating) == (2, (), (), False)


def test_a_move_is_pulled_then_dropped_and_the_retired_worker_disappears_after_its_drop():
    controller = Controller(AWAY, catalog.make("megaphone-all-at-once"))
    controller.plan(0, 1)
    controller.observe(Observation(0))
    controller.accept(command(START))
    moving = controller.plan(1, 1)
    assert moving.workers == 4
    assert moving.drops == ()
    assert controller.observe(Observation(1, pulled=(0,))) == [MigrationBegun("c", "c", 1, 1), MigrationDone("c", 1)]
    dropping = controller.plan(2, 1)
    assert dropping.drops == ((0, 3),)
    assert dropping.workers == 4
    controller.observe(Observation(2))
    assert controller.plan(3, 1).workers == 2


def test_drops_of_much_state_take_several_epochs_and_keep_their_worker():
    start = np.array([3, 3, 3, 1], np.int32)
    controller = Controller(start, catalog.make("megaphone-all-at-once"), drop_entries=100)
    controller.plan(0, 1)
    controller.observe(Observation(0))
    controller.accept(command([1, 1, 1, 1]))
    controller.plan(1, 1)
    controller.observe(Observation(1, pulled=(0, 1, 2), entries=(60, 60, 40)))
    again = Controller(start, catalog.make("none"), drop_entries=100)
    again.restore(json.loads(json.dumps(controller.to_json())))
    dropped = []
    for epoch in (2, 3):
        written = controller.plan(epoch, 1)
        assert (written.workers, 3 in controller.fresh_workers(written)) == (4, False)
        assert again.plan(epoch, 1).drops == written.drops
        controller.observe(Observation(epoch)), again.observe(Observation(epoch))
        dropped.append(written.drops)
    assert dropped == [((0, 3), (2, 3)), ((1, 3),)]
    assert controller.plan(4, 1).workers == 2


def test_a_worker_that_owns_nothing_may_start_empty():
    controller = started()
    controller.accept(command(AWAY))
    written = controller.plan(1, 1)
    assert controller.fresh_workers(written) == (2, 3)


def test_a_command_before_the_first_epoch_waits_until_there_is_state():
    controller = Controller(START, catalog.make("megaphone-all-at-once"))
    controller.accept(command(AWAY, from_epoch=0))
    assert controller.plan(0, 1).plan.pulls == ()
    assert controller.migrating
    controller.observe(Observation(0))
    assert len(controller.plan(1, 1).plan.pulls) == 1


def test_an_epoch_observed_twice_counts_once():
    controller = started()
    controller.accept(command(AWAY))
    controller.plan(1, 1)
    once = controller.observe(Observation(1, pulled=(0,)))
    assert controller.observe(Observation(1, pulled=(0,))) == once
    assert controller.plan(2, 1).drops == ((0, 0),)


def test_a_pull_that_was_not_planned_is_refused():
    controller = started()
    controller.plan(1, 1)
    with pytest.raises(StateError, match="bin 2"):
        controller.observe(Observation(1, pulled=(2,)))


def test_a_later_command_takes_the_place_of_a_migration():
    controller = started("megaphone-fluid")
    controller.accept(command([2, 2, 2, 2], name="one"))
    controller.plan(1, 1)
    controller.observe(Observation(1, pulled=(0,)))
    controller.accept(command([2, 0, 1, 1], from_epoch=2, name="two"))
    assert controller.plan(2, 1).plan.pulls == ()
    events = controller.observe(Observation(2))
    assert events[0] == MigrationDone("one", 2, superseded=True)
    assert events[-1] == MigrationDone("two", 2)
    assert not controller.migrating


def stop(controller, epoch):
    assert controller.plan(epoch, 1).plan.stop == "query"
    assert controller.observe(Observation(epoch, stopped=True)) == []


def test_after_a_stop_all_bins_are_pulled_from_the_checkpoint_and_the_old_owner_drops():
    controller = started("runtime-restart")
    controller.accept(command(AWAY))
    stop(controller, 1)
    written = controller.plan(1, 1)
    assert (written.plan.stop, written.plan.from_checkpoint, written.plan.pulls) == (None, True, (Pull(0, 0, 3),))
    events = controller.observe(Observation(1, pulled=(0,)))
    assert events == [MigrationBegun("c", "c", 1, 1), MigrationDone("c", 1)]
    assert controller.plan(2, 1).drops == ((0, 0),)


def test_a_command_after_a_stop_needs_a_stop_of_its_own():
    controller = started("runtime-restart")
    controller.accept(command(AWAY))
    stop(controller, 1)
    controller.accept(command([2, 0, 1, 1], from_epoch=1, name="other"))
    stop(controller, 1)
    assert controller.plan(1, 1).plan.pulls == (Pull(0, 0, 2),)


def test_a_bin_that_goes_back_after_a_stop_is_dropped_before_it_is_pulled():
    controller = started("runtime-restart")
    controller.accept(command(AWAY))
    stop(controller, 1)
    controller.plan(1, 1)
    controller.observe(Observation(1, pulled=(0,)))
    controller.accept(command(START, from_epoch=2, name="back"))
    stop(controller, 2)
    written = controller.plan(2, 1)
    assert (written.drops, written.plan.pulls) == (((0, 0),), (Pull(0, 3, 0),))


def test_a_stop_is_remembered_by_a_new_driver():
    controller = started("runtime-restart")
    first, asked = Controller(START, catalog.make("none")).plan(0, 1), command(AWAY)
    controller.accept(asked)
    plans = [first, controller.plan(1, 1)]
    before = Controller(START, catalog.make("runtime-restart"))
    before.replay(plans, [Observation(0)], [asked])
    assert before.plan(1, 2).plan.stop == "query"
    after = Controller(START, catalog.make("runtime-restart"))
    after.replay(plans, [Observation(0), Observation(1, stopped=True)], [asked])
    assert after.plan(1, 2).plan.pulls == (Pull(0, 0, 3),)
    assert after.observe(Observation(1, pulled=(0,)))[-1] == MigrationDone("c", 1)


def test_a_base_holds_what_a_later_epoch_and_the_same_one_again_depend_on():
    controller = started("megaphone-fluid")
    controller.accept(command([2, 2, 2, 2]))
    controller.plan(1, 1)
    told = controller.observe(Observation(1, pulled=(0,), sizes=(np.array([0]), np.array([70]))))
    controller.accept(command(AWAY, from_epoch=9, name="later"))
    other = Controller(np.zeros(4, np.int32), catalog.make("megaphone-fluid"))
    other.restore(json.loads(json.dumps(controller.to_json())))
    assert other.to_json() == controller.to_json()
    assert other.observe(Observation(1)) == told
    assert other.before(1).location.tolist() == START.tolist()
    assert other.before(2).location.tolist() == [2, 0, 1, 1]
    assert other.plan(2, 2).plan.pulls == controller.plan(2, 2).plan.pulls == (Pull(1, 0, 2),)
    assert other.commanded.tolist() == AWAY.tolist()


def test_a_base_of_another_number_of_bins_is_refused():
    data = started().to_json()
    with pytest.raises(ValueError, match="entries instead of 8"):
        Controller(np.zeros(8, np.int32), catalog.make("none")).restore(data)


def test_an_observed_epoch_without_a_plan_is_refused():
    plan = Controller(START, catalog.make("none")).plan(0, 1)
    with pytest.raises(StateError, match="Epoch 1"):
        Controller(START, catalog.make("none")).replay([plan], [Observation(0), Observation(1)], [])


def test_a_new_driver_begins_where_the_first_plan_began_whatever_workers_it_is_started_with():
    controller = started()
    controller.accept(command(AWAY))
    plans = [Controller(START, catalog.make("none")).plan(0, 1), controller.plan(1, 1)]
    other = Controller(np.zeros(4, np.int32), catalog.make("megaphone-all-at-once"))
    other.replay(plans, [Observation(0), Observation(1, pulled=(0,))], [command(AWAY)])
    assert np.array_equal(other.location, AWAY)
    assert other.plan(2, 2).drops == ((0, 0),)


def test_what_is_logged_can_be_read_back():
    seen = Observation(3, (1,), (np.array([1], np.int32), np.array([9], np.int64)), pull_ms=1.5)
    assert Observation.from_json(json.loads(json.dumps(seen.to_json()))).to_json() == seen.to_json()
    plan = WrittenPlan(3, 1, 4, EpochPlan(AWAY, (Pull(0, 0, 3),), from_checkpoint=True), ((1, 2),), migrating=True)
    data = json.loads(json.dumps(plan.to_json()))
    assert WrittenPlan.from_json(data).to_json() == plan.to_json()
    del data["from_checkpoint"]  # as an older version wrote it
    assert WrittenPlan.from_json(data).plan.from_checkpoint is False
    asked = Command.new("rescale", AWAY, "grow", from_epoch=3)
    assert Command.from_json(json.loads(json.dumps(asked.to_json()))).to_json() == asked.to_json()


def test_an_invalid_plan_is_refused():
    class Bad(Mechanism):
        def plan(self, view):
            return EpochPlan(view.goal)

    controller = Controller(START, Bad())
    controller.plan(0, 1)
    controller.observe(Observation(0))
    controller.accept(command(AWAY))
    with pytest.raises(InvalidPlanError, match="bin 0"):
        controller.plan(1, 1)
