"""The coordinator: who is told what in an epoch, whatever tasks come, go and speak in whatever order."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from impls.errors import StateError
from impls.protocol.coordinator import Coordinator
from impls.protocol.order import EpochOrder
from impls.protocol.plan import EpochPlan, WrittenPlan
from impls.protocol.session import Closed, Ended, Failed, Final, Hello, Marks, NewEpoch, Route, Routed, Say, Watermark

ROUTERS, SLOTS = 2, 3


def order(epoch=0, routing=(0, 1), *, workers=2):
    plan = EpochPlan(np.array(routing, np.int32))
    return EpochOrder(WrittenPlan(epoch, 1, workers, plan))


def hellos(run="a", batch=0):
    routers = [Hello("router", index, ROUTERS, run, batch, 10 + index) for index in range(ROUTERS)]
    return routers + [Hello("worker", index, SLOTS, run, batch, 20 + index) for index in range(SLOTS)]


def session(coordinator, run="a", batch=0):
    said = []
    for hello in hellos(run, batch):
        said += coordinator.joined(hello)
    return said


def router(index, run="a", batch=0):
    return hellos(run, batch)[index]


def worker(index, run="a", batch=0):
    return hellos(run, batch)[ROUTERS + index]


def kinds(said):
    return [(say.role, say.index, type(say.message)) for say in said]


def begun(**more):
    coordinator = Coordinator()
    session(coordinator)
    coordinator.begin(order(**more))
    return coordinator


TOLD = [("worker", 0, NewEpoch), ("worker", 1, NewEpoch), ("router", 0, Route), ("router", 1, Route)]


def test_an_epoch_is_told_when_the_last_task_has_joined():
    coordinator = Coordinator()
    assert coordinator.begin(order()) == []
    assert kinds(session(coordinator)) == TOLD
    assert coordinator.complete
    assert coordinator.slots == SLOTS
    assert coordinator.pids == [20, 21, 22]


@given(st.permutations(range(ROUTERS + SLOTS)))
def test_the_order_in_which_tasks_join_changes_nothing(places):
    coordinator = Coordinator()
    coordinator.begin(order())
    said = [say for place in places for say in coordinator.joined(hellos()[place])]
    assert kinds(said) == TOLD


def test_marks_come_when_every_router_has_switched_and_name_the_blobs_of_each_worker():
    coordinator = begun()
    assert coordinator.receive(router(1), Routed(0, (4, 5, 6))) == []
    said = coordinator.receive(router(0), Routed(0, (1, 2, 3)))
    assert said == [Say("worker", 0, Marks(0, ((0, 1), (1, 4)))), Say("worker", 1, Marks(0, ((0, 2), (1, 5))))]


def test_no_marks_come_when_a_router_has_gone():
    coordinator = begun()
    coordinator.receive(router(1), Routed(0, (0, 0, 0)))
    coordinator.left(router(1))
    assert coordinator.receive(router(0), Routed(0, (0, 0, 0))) == []


def test_that_a_worker_is_final_is_handed_to_all_of_the_plan():
    said = begun().receive(worker(1), Final(0, 1))
    assert said == [Say("worker", 0, Final(0, 1)), Say("worker", 1, Final(0, 1))]


def done(coordinator, epoch=0, run="a", batch=0):
    for index in range(2):
        coordinator.receive(worker(index, run, batch), Ended(epoch, index, b"{}", b""))
    return coordinator.done


def test_an_epoch_is_done_when_every_worker_of_the_plan_has_ended_it():
    coordinator = begun()
    assert not coordinator.done
    assert done(coordinator)


def marks(coordinator, epoch):
    coordinator.receive(router(0), Routed(epoch, (1, 1, 1)))
    return [say.message for say in coordinator.receive(router(1), Routed(epoch, (1, 1, 1)))]


def test_marks_of_unchanged_routing_say_that_all_workers_are_final():
    coordinator = begun()
    assert [mark.settled for mark in marks(coordinator, 0)] == [False, False]
    assert done(coordinator)
    assert kinds(coordinator.begin(order(1))) == TOLD
    assert [mark.settled for mark in marks(coordinator, 1)] == [True, True]
    assert done(coordinator, 1)
    coordinator.begin(order(2, (1, 0)))
    assert [mark.settled for mark in marks(coordinator, 2)] == [False, False]


def test_what_was_sent_before_a_switch_is_not_needed_again_when_the_epoch_is_done():
    coordinator = begun()
    coordinator.receive(router(0), Routed(0, (1, 1, 1), ((0, 50),)))
    coordinator.receive(router(1), Routed(0, (1, 1, 1), ((1, 70),)))
    coordinator.receive(worker(0), Ended(0, 0, b"{}", b""))
    assert coordinator.needed == {}
    coordinator.receive(worker(1), Ended(0, 1, b"{}", b""))
    assert coordinator.needed == {0: 50, 1: 70}


def test_a_session_that_has_sent_nothing_yet_says_nothing_of_what_is_needed():
    coordinator = begun()
    coordinator.receive(router(0), Routed(0, (1, 1, 1), ((0, 50),)))
    session(coordinator, batch=1)
    assert done(coordinator, batch=1)
    assert coordinator.needed == {}


def test_routing_that_another_session_was_told_is_no_unchanged_routing():
    coordinator = begun()
    assert done(coordinator)
    session(coordinator, batch=1)
    assert kinds(coordinator.begin(order(1))) == TOLD


def test_an_epoch_goes_on_with_the_next_session_and_what_the_one_before_says_is_passed_over():
    coordinator = begun()
    coordinator.receive(router(0), Routed(0, (7, 7, 7)))
    coordinator.receive(worker(0), Ended(0, 0, b"{}", b""))
    assert kinds(session(coordinator, batch=1)) == TOLD
    assert coordinator.ended == {}, "a worker that has ended answers again: with what this session knows"
    assert coordinator.receive(worker(1), Final(0, 1)) == []
    assert coordinator.receive(router(0, batch=1), Routed(0, (0, 0, 0))) == []
    said = coordinator.receive(router(1, batch=1), Routed(0, (0, 0, 0)))
    assert not any(say.message.settled for say in said)
    assert [say.message.counts for say in said] == [((0, 0), (1, 0))] * 2


def test_an_epoch_that_is_done_stays_done_when_a_session_replaces_its_own():
    coordinator = begun()
    assert done(coordinator)
    assert session(coordinator, batch=1) == []
    assert coordinator.done


@pytest.mark.parametrize("late", [worker(2), worker(2, "z", 5)], ids=["an earlier batch", "an earlier start"])
def test_a_task_that_comes_late_begins_no_session(late):
    coordinator = Coordinator()
    session(coordinator, "z", 4)
    session(coordinator, batch=1)
    assert coordinator.joined(late) == []
    assert coordinator.complete
    assert coordinator.begin(order()) != []


def test_a_task_that_is_started_again_in_its_session_fails_it_and_the_next_one_begins_well():
    coordinator = begun()
    coordinator.left(worker(1))
    again = replace(worker(1), pid=99)
    assert coordinator.joined(again) == []
    assert coordinator.failed == Failed("worker", 1, "StateError", "Spark has started it again")
    coordinator.end()
    assert kinds(session(coordinator, "b")) == TOLD
    assert coordinator.failed is None


def test_a_worker_is_unclosed_until_it_says_that_it_is_closed():
    coordinator = begun()
    again = replace(worker(1), pid=99)
    coordinator.left(worker(0))
    coordinator.joined(again)
    assert (coordinator.pids, coordinator.unclosed) == ([21, 22], [*hellos()[ROUTERS:], again])
    session(coordinator, batch=1)
    for one in (worker(0), worker(1), again):
        coordinator.receive(one, Closed(one.index))
    assert coordinator.unclosed == [worker(2), *hellos(batch=1)[ROUTERS:]]
    coordinator.end()
    assert coordinator.unclosed == []


def test_a_session_that_is_ended_is_forgotten():
    coordinator = begun()
    coordinator.end()
    assert (coordinator.complete, coordinator.slots, coordinator.pids) == (False, 0, [])
    assert coordinator.begin(order()) == []
    assert session(coordinator) == []
    assert not coordinator.complete
    assert kinds(session(coordinator, "b")) == TOLD


def test_an_epoch_is_told_to_a_session_once():
    coordinator = begun()
    assert coordinator.begin(order()) == []
    coordinator.receive(worker(0), Ended(0, 0, b"{}", b""))
    coordinator.begin(order())
    assert list(coordinator.ended) == [0]


def test_a_plan_of_more_workers_than_slots_is_told_to_nobody():
    coordinator = Coordinator()
    session(coordinator)
    assert coordinator.begin(order(workers=SLOTS + 1)) == []


def test_what_is_said_of_another_epoch_is_passed_over():
    coordinator = begun(epoch=3)
    assert coordinator.receive(router(0), Routed(2, (1, 1, 1))) == []
    assert coordinator.receive(router(1), Routed(3, (1, 1, 1))) == []
    coordinator.receive(worker(0), Ended(2, 0, b"{}", b""))
    assert coordinator.ended == {}


def test_the_first_failure_of_a_session_is_kept():
    coordinator = begun()
    first, second = Failed("worker", 1, "StateError", "first"), Failed("worker", 0, "StateError", "second")
    coordinator.receive(worker(1), first)
    coordinator.receive(worker(0), second)
    assert coordinator.failed == first
    session(coordinator, "b")
    assert coordinator.failed is None


def test_a_worker_ends_an_epoch_for_itself_alone():
    with pytest.raises(StateError, match="worker 0 ends the epoch 0 for worker 1"):
        begun().receive(worker(0), Ended(0, 1, b"{}", b""))


class Rising:
    """Notes what it is asked with, and answers with the highest time."""

    def __init__(self):
        self.asked = []

    def __call__(self, times, read):
        self.asked.append((sorted(times), read))
        return max((at for _, at in times), default=None)


def told(said):
    return [say for say in said if isinstance(say.message, Watermark)]


def final(coordinator, index, *times, run="a"):
    return told(coordinator.receive(worker(index, run), Final(0, index, times)))


def test_all_workers_are_told_the_watermark_when_the_last_of_them_is_final():
    coordinator = begun()
    coordinator.rise = rising = Rising()
    coordinator.needed = {0: 40, 1: 30, 2: 20}
    coordinator.receive(router(0), Routed(0, (1, 1, 1), ((0, 44),)))
    said = coordinator.receive(router(1), Routed(0, (1, 1, 1), ((1, 25),)))
    assert [say.message.rises for say in said] == [True, True]
    assert final(coordinator, 0, (0, 7)) == []
    assert final(coordinator, 1, (0, 5), (1, 9)) == [Say("worker", w, Watermark(0, 9)) for w in (0, 1)]
    assert rising.asked == [([(0, 5), (0, 7), (1, 9)], {0: 44, 1: 30, 2: 20})], "what was read before is not unread"


def test_in_a_session_that_follows_all_are_final_anew_before_the_watermark_is_told():
    coordinator = begun()
    coordinator.rise = Rising()
    assert final(coordinator, 0, (0, 7)) == []
    session(coordinator, "b")
    assert final(coordinator, 1, (0, 5), run="b") == []
    assert [say.message.watermark for say in final(coordinator, 0, run="b")] == [5, 5], "the first one's 7 is forgotten"


def test_without_event_time_no_watermark_is_told():
    coordinator = begun()
    assert [mark.rises for mark in marks(coordinator, 0)] == [False, False]
    assert [final(coordinator, index) for index in (0, 1)] == [[], []]


def awaits(said):
    return [say.message.until for say in said if isinstance(say.message, Route)]


def test_routers_wait_for_what_timers_wait_for_only_where_the_routing_stays():
    coordinator = begun()
    asked = []
    coordinator.awaited = lambda due: asked.append(due) or {3: 40}
    assert awaits(coordinator.begin(order(0))) == []
    coordinator.receive(worker(0), Ended(0, 0, b"{}", b"", 17))
    coordinator.receive(worker(1), Ended(0, 1, b"{}", b""))
    assert awaits(coordinator.begin(order(1))) == [((3, 40),)] * 2
    assert done(coordinator, 1)
    assert awaits(coordinator.begin(order(2, (1, 0)))) == [(), ()], "a rescale waits for nobody"
    assert asked == [17, None]
