"""A change of the pipeline, epoch by epoch, without workers."""

import json

import numpy as np
import pytest

from impls.protocol.changing import PROOF_EPOCHS, TRIAL_EPOCHS, Bins, Changing
from impls.protocol.events import ChangeBegun, ChangeDone, ChangeRefused
from impls.protocol.versions import Change, Failure, Version, Versions, needed, path_between, shape_of
from impls.protocol.view import Observation

BINS = 8
SIZES = np.full(BINS, 100, np.int64)
LOCATION = np.arange(BINS, dtype=np.int32) % 2


def known(ready=None, *, calm=True):
    chosen = np.ones(BINS, bool) if ready is None else np.isin(np.arange(BINS), ready)
    return Bins(chosen, LOCATION, SIZES, calm)


def version(number=1, parent=0, **how):
    return Version(number, parent, f"code{number}", f"to {number}", **how)


class Run:
    """Epochs of a query whose workers do what the plan says."""

    def __init__(self, *changes, bins=BINS):
        self.changing, self.epoch, self.events = Changing(bins), 0, []
        for change in changes:
            self.ask(change)

    def ask(self, change):
        self.changing.accept(Change(f"c{change.number}", change, self.epoch))

    def step(self, bins=None, *, tried=5, failed=(), obey=True):
        bins = known() if bins is None else bins
        self.changing.activate(self.epoch)
        planned = self.changing.plan(bins)
        if planned is not None:
            planned = Versions.from_json(json.loads(json.dumps(planned.to_json())))
            self.changing.hold(planned)
        turned = self._turned(planned) if planned is not None and obey else []
        tried = tried if planned is not None and planned.trial else 0
        failures = [Failure(number, "it broke") for number in failed]
        self.events += self.changing.observe(
            Observation(self.epoch, turned=tuple(turned), tried=tried, failed=tuple(failures))
        )
        self.epoch += 1
        self.changing = again(self.changing)
        return planned

    def _turned(self, planned):
        shapes = [shape_of(int(number), self.changing.versions) for number in planned.required]
        return [(b, shapes[b]) for b in planned.refits if self.changing.shape[b] != shapes[b]]

    def kinds(self):
        return [type(event) for event in self.events]


def again(changing):
    """Returns the same from its JSON, as after a restart."""
    other = Changing(len(changing.required))
    other.restore(json.loads(json.dumps(changing.to_json())))
    return other


def test_without_a_change_plans_say_nothing():
    assert Run().step() is None


def test_a_change_is_tried_then_holds_for_all_bins_at_once():
    run = Run(version())
    assert run.step().trial == 1
    planned = run.step()
    assert (planned.required == 1).all()
    assert planned.guarded == 1
    assert run.kinds() == [ChangeBegun, ChangeDone]
    assert run.changing.outcome("c1").state == "done"
    assert not run.changing.active


def test_a_version_that_fails_when_it_is_tried_is_never_taken_over():
    run = Run(version())
    run.step(failed=[1])
    assert (run.step().required == 0).all()
    assert run.events[-1] == ChangeRefused("c1", 0, 1, "it broke")
    assert run.changing.outcome("c1").why == "it broke"
    assert run.changing.latest == 0


def test_a_trial_waits_for_records_but_not_for_ever():
    run = Run(version())
    for _ in range(TRIAL_EPOCHS):
        assert run.step(tried=0).trial == 1
    assert run.step(tried=0).trial == 0


def test_a_version_that_fails_later_is_taken_back():
    run = Run(version())
    run.step(), run.step()
    run.step(failed=[1])
    assert (run.step().required == 0).all()
    assert run.events[-1] == ChangeRefused("c1", 3, 1, "it broke", rolled_back=True)
    assert run.changing.latest == 0


def test_after_its_proof_a_change_is_not_guarded_any_more():
    run = Run(version())
    for _ in range(2 + PROOF_EPOCHS):
        run.step()
    assert run.step().guarded == 0


def test_bins_that_move_or_wait_go_over_when_they_have_come():
    run = Run(version())
    run.step()
    assert run.step(known([0, 1])).required.tolist() == [1, 1, 0, 0, 0, 0, 0, 0]
    assert run.changing.active
    run.step()
    assert run.kinds()[-1] is ChangeDone


def test_nothing_goes_over_while_a_bin_runs_twice_or_the_query_stops():
    run = Run(version())
    run.step()
    assert (run.step(known(calm=False)).required == 0).all()


def test_state_changes_its_shape_within_each_workers_budget():
    run = Run(version(migrates=True, budget_bytes=250))
    run.step()
    planned = run.step()
    assert planned.refits == (0, 1, 2, 3)  # two of 100 bytes at each of two workers
    assert planned.required.tolist() == [1, 1, 1, 1, 0, 0, 0, 0]
    assert run.changing.shape.tolist() == [1, 1, 1, 1, 0, 0, 0, 0]
    run.step()
    assert run.kinds()[-1] is ChangeDone


def test_a_bin_larger_than_the_budget_goes_alone():
    run = Run(version(migrates=True, budget_bytes=1))
    run.step()
    assert run.step().refits == (0, 1)


def test_a_lazy_change_holds_at_once_and_state_follows():
    run = Run(version(migrates=True, lazy=True, budget_bytes=100))
    run.step()
    planned = run.step()
    assert (planned.required == 1).all()
    assert planned.refits == (0, 1)
    for _ in range(3):
        run.step()
    assert run.kinds()[-1] is ChangeDone


@pytest.mark.parametrize(("returns", "left"), [(True, [0] * 8), (False, [1, 1, 0, 0, 0, 0, 0, 0])])
def test_state_that_has_no_way_back_stays_where_it_is(returns, left):
    run = Run(version(migrates=True, returns=returns, budget_bytes=100))
    run.step(), run.step()
    run.step(failed=[1], obey=False)
    for _ in range(6):
        run.step()
    assert run.changing.required.tolist() == left
    assert run.changing.shape.tolist() == left
    assert run.kinds()[-1] is ChangeRefused


@pytest.mark.parametrize("lazy", [False, True])
def test_a_bin_on_whose_state_the_way_back_fails_stays_at_the_version_and_the_others_go_back(lazy):
    run = Run(version(migrates=True, returns=True, lazy=lazy, budget_bytes=1000))
    run.step(), run.step()
    run.step(failed=[1])
    run.changing.activate(run.epoch)
    planned = run.changing.plan(known())
    assert (planned.guarded, planned.required.tolist()) == (1, [0] * 8)
    run.changing.hold(planned)
    stuck = Failure(1, "no way back", 5)
    run.events += run.changing.observe(Observation(run.epoch, failed=(stuck,)))
    run.changing = again(run.changing)
    assert run.changing.outcome("c1").state == "back"
    run.step()
    assert run.changing.required.tolist() == run.changing.shape.tolist() == [0, 0, 0, 0, 0, 1, 0, 0]
    stay = "bin 5 had to stay at version 1 (1 of 8 bins): replace it again, with repairs=1"
    assert run.events[-1] == ChangeRefused("c1", 3, 1, f"it broke; {stay}", rolled_back=True)
    assert run.changing.outcome("c1").why == f"it broke; {stay}"


def test_a_bin_on_whose_state_the_way_back_fails_once_and_not_again_goes_back():
    """Other records came, and a worker that does without the version tries all of its bins."""
    run = Run(version(migrates=True, returns=True, budget_bytes=1000))
    run.step(), run.step()
    run.step(failed=[1])
    for seen in ({"failed": (Failure(1, "no way back", 5),)}, {"turned": ((5, 0),)}):
        run.changing.hold(run.changing.plan(known([0])))
        run.changing.observe(Observation(run.epoch, **seen))
        run.epoch += 1
    for _ in range(4):
        run.step()
    assert run.changing.required.tolist() == run.changing.shape.tolist() == [0] * BINS
    assert run.events[-1].why == "it broke"


def test_a_lazy_change_is_not_taken_back_before_the_states_are():
    run = Run(version(migrates=True, returns=True, lazy=True, budget_bytes=100))
    for _ in range(6):
        run.step()
    run.step(failed=[1])
    for left in (6, 4, 2):
        planned = run.step()
        assert (planned.guarded, int(run.changing.shape.sum())) == (1, left)
        assert run.kinds()[-1] is ChangeDone
    run.step()
    assert run.kinds()[-1] is ChangeRefused
    assert not run.changing.shape.any()


def test_a_version_is_guarded_as_long_as_bins_run_under_it_that_can_go_back():
    run = Run(version(migrates=True, returns=True, budget_bytes=100))
    run.step()
    assert run.step().guarded == 1
    assert run.step(known(calm=False)).guarded == 1
    run.step(failed=[1])
    planned = run.step(failed=[1])
    assert (planned.guarded, planned.required.tolist()) == (1, [0, 0, 1, 1, 0, 0, 0, 0])
    run.step()
    assert run.step().guarded == 0


def test_a_change_is_refused_where_bins_had_to_stay_at_another_version():
    run = Run(version(migrates=True, budget_bytes=100), version(2, 1))
    run.step(), run.step()
    run.step(failed=[1], obey=False)
    run.step()
    run.ask(version(3, 0))
    run.step(), run.step()
    refused = {event.version: event.why for event in run.events if isinstance(event, ChangeRefused)}
    stay = "bin 0 and others had to stay at version 1 (2 of 8 bins): replace it again, with repairs=1"
    assert refused[3] == stay
    assert run.changing.required.tolist() == [1, 1, 0, 0, 0, 0, 0, 0]


@pytest.mark.parametrize("returns", [True, False])
@pytest.mark.parametrize("fails", [True, False])
def test_a_version_that_mends_takes_the_states_that_had_to_stay_for_its_own(returns, fails):
    run = Run(version(migrates=True, budget_bytes=100))
    run.step(), run.step()
    run.step(failed=[1], obey=False)
    run.step()
    run.ask(version(2, 0, migrates=True, returns=returns, budget_bytes=100, repairs=1))
    run.step()
    assert run.step().refits == (0, 1)
    if not fails:
        for _ in range(6):
            run.step()
        assert run.changing.required.tolist() == run.changing.shape.tolist() == [2] * 8
        assert run.kinds()[-1] is ChangeDone
        return
    run.step(failed=[2], obey=False)
    for _ in range(6):
        run.step()
    assert run.changing.required.tolist() == ([0] * 8 if returns else [2, 2, 0, 0, 0, 0, 0, 0])
    assert run.kinds()[-1] is ChangeRefused


def test_a_version_that_mends_and_fails_before_its_turn_leaves_states_where_they_had_to_stay():
    run = Run(version(migrates=True, lazy=True))
    run.step(), run.step(obey=False)
    run.changing.observe(Observation(run.epoch, turned=((3, 1),)))
    run.step(failed=[1], obey=False)
    run.step()
    assert run.changing.required.tolist() == [0, 0, 0, 1, 0, 0, 0, 0]
    run.ask(version(2, 0, migrates=True, lazy=True, repairs=1))
    run.step(), run.step(obey=False)
    assert run.changing.required.tolist() == [2] * 8
    run.step(failed=[2], obey=False)
    run.step()
    assert run.changing.required.tolist() == [0, 0, 0, 1, 0, 0, 0, 0]


def test_a_bin_that_took_its_shape_behind_the_last_report_stays_with_it():
    run = Run(version(migrates=True, lazy=True))
    run.step(), run.step(obey=False)
    run.step(failed=[1], obey=False)
    changing = run.changing
    changing.activate(run.epoch)
    changing.hold(changing.plan(known()))
    assert (changing.required == 0).all()
    changing.observe(Observation(run.epoch, turned=((3, 1),)))
    assert changing.required.tolist() == changing.shape.tolist() == [0, 0, 0, 1, 0, 0, 0, 0]


def test_the_shapes_before_an_epoch_are_known_as_long_as_it_may_be_run_again():
    run = Run(version(migrates=True, returns=True), version(2, 1, migrates=True))
    run.step(), run.step()
    assert (run.changing.left, run.changing.shape.tolist()) == ([0], [1] * 8)
    run.step(obey=False)
    assert again(run.changing).left == [1]


def test_changes_follow_each_other_and_one_that_builds_on_a_refused_one_is_refused():
    run = Run(version(), version(2, 1))
    run.step(failed=[1])
    run.step()
    refused = [event for event in run.events if isinstance(event, ChangeRefused)]
    assert [event.version for event in refused] == [1, 2]
    run.ask(version(3, 0))
    for _ in range(3):
        run.step()
    assert (run.changing.required == 3).all()


def test_a_change_waits_for_the_one_before_it():
    run = Run(version(), version(2, 1))
    seen = [run.step() for _ in range(5)]
    assert [planned.trial for planned in seen] == [1, 0, 2, 0, 0]
    assert (run.changing.required == 2).all()


def test_shapes_and_the_ways_between_them():
    versions = {1: version(1, 0, migrates=True), 2: version(2, 1), 3: version(3, 2, migrates=True), 4: version(4, 0)}
    assert [shape_of(number, versions) for number in (0, 1, 2, 3, 4)] == [0, 1, 1, 3, 0]
    assert path_between(0, 3, versions) == [(1, "migrate"), (3, "migrate")]
    assert path_between(3, 0, versions) == [(3, "back"), (1, "back")]
    assert path_between(1, 1, versions) == []
    assert needed([3], [0], versions) == [1, 2, 3]
    assert needed([4], [0], versions) == [4]
