"""A worker's part of an epoch: what it may pull when, and when it is done."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from impls.protocol.order import EpochOrder
from impls.protocol.plan import EpochPlan, Pull, WrittenPlan
from impls.protocol.session import Final, Marks
from impls.realtime.marks import Progress
from impls.worker.pull import Pulls

SIZES = {0: 100, 1: 100, 2: 100}
PULLS = (Pull(0, 1, 0), Pull(1, 1, 0), Pull(2, 2, 0), Pull(3, 0, 1))


class Part:
    """The pulls of worker 0 in epoch 5, and how far that is."""

    def __init__(self, *, done=(), **plan):
        written = WrittenPlan(5, 1, 3, EpochPlan(np.array([0, 0, 0, 1], np.int32), PULLS, **plan))
        elsewhere = tuple((pull.bin, pull.source) for pull in PULLS)
        order = EpochOrder(written, elsewhere=elsewhere, sizes=tuple(SIZES.items()))
        self.pulls, self._progress = Pulls(order, 0, done), Progress(5)
        self.hear, self.reached, self.pulled = self._progress.hear, self._progress.reached, self.pulls.pulled

    @property
    def missing(self):
        return self.pulls.missing

    def due(self, need, *, closing):
        return self.pulls.due(need, self._progress.final, closing=closing)

    def closing(self, applied):
        final = self._progress.final
        return (final is None or self.pulls.sources <= final) and self.reached(applied)

    def ready(self, applied):
        return self.reached(applied) and self.pulls.complete


def bins(pulls):
    return [pull.bin for pull in pulls]


def test_a_bin_is_pulled_when_its_old_owner_is_final_and_the_epoch_is_ready_without_a_record_for_it():
    one = Part()
    assert one.missing == {0, 1, 2}
    one.hear(Marks(5, ((0, 2),)))
    assert not one.due({}, closing=False)
    one.hear(Final(5, 1))
    due = one.due({}, closing=False)
    assert bins(due) == [0, 1]
    one.pulled(due, closing=False)
    assert one.missing == {2}
    assert not one.ready({0: 2})
    one.hear(Final(5, 2))
    one.pulled(one.due({}, closing=False), closing=False)
    assert not one.missing
    assert not one.ready({0: 1})
    assert one.ready({0: 2})


def test_what_is_said_of_another_epoch_is_passed_over():
    one = Part()
    one.hear(Final(4, 1))
    one.hear(Marks(4, (), settled=True))
    assert not one.due({}, closing=False)
    assert not one.reached({})


def test_without_marks_nothing_is_reached_and_with_none_to_wait_for_all_are_final():
    one = Part()
    assert not one.reached({0: 99})
    one.hear(Marks(5, (), settled=True))
    assert one.reached({})
    assert one.closing({})
    assert bins(one.due({}, closing=False)) == [0, 1, 2]


def test_what_was_pulled_before_the_task_began_again_is_not_missing():
    one = Part(done=[0, 2])
    one.hear(Marks(5, (), settled=True))
    assert one.missing == {1}
    assert bins(one.due({}, closing=False)) == [1]


@given(st.integers(0, 400))
def test_pulls_of_a_plan_keep_the_budget_and_are_one_at_least(budget):
    one = Part(budget_bytes=budget)
    one.hear(Marks(5, (), settled=True))
    due = one.due({}, closing=False)
    assert bins(due) == [0, 1, 2][: max(1, budget // 100)]
    one.pulled(due, closing=False)
    assert one.ready({})


def test_on_demand_what_records_wait_for_comes_first_and_the_rest_once_nothing_more_comes():
    one = Part(on_demand=True)
    one.hear(Final(5, 1))
    one.hear(Final(5, 2))
    assert not one.due({}, closing=False)
    due = one.due({1: 2, 2: 5}, closing=False)
    assert bins(due) == [2, 1]
    one.pulled(due, closing=False)
    assert not one.ready({}), "the marks have not come"
    one.hear(Marks(5, ((0, 1),)))
    assert not one.closing({})
    assert one.closing({0: 1})
    assert not one.ready({0: 1})
    one.pulled(one.due({}, closing=True), closing=True)
    assert not one.missing
    assert one.ready({0: 1})


def test_on_demand_the_budget_is_that_of_all_commits_of_the_epoch():
    one = Part(on_demand=True, budget_bytes=150)
    one.hear(Marks(5, (), settled=True))
    spent = []
    for need in ({0: 1}, {1: 1}, {2: 1}):
        due = one.due(need, closing=False)
        spent += bins(due)
        one.pulled(due, closing=False)
    assert spent[0] == 0
    assert len(spent) <= 2
    one.pulled(one.due({}, closing=True), closing=True)
    assert one.ready({}), "what the budget leaves waits for the next epoch"


def test_an_epoch_does_not_close_before_every_old_owner_of_a_bin_is_final():
    one = Part(on_demand=True)
    one.hear(Marks(5, ((0, 0),)))
    one.hear(Final(5, 1))
    assert one.reached({})
    assert not one.closing({})
    one.hear(Final(5, 2))
    assert one.closing({})
