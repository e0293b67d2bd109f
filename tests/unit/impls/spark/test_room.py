"""How many workers a session can run in real time."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from impls.errors import UsageError
from impls.protocol.session import Hello
from impls.spark.master import threads_of
from impls.spark.realtime.room import Room


def hello(role):
    return Hello(role, 0, 0, "run", 0, 0)


@pytest.fixture
def room_of():
    rooms = []

    def make(threads, slots, counted=lambda said: said, *, session="one", routers=1):
        rooms.append(Room(session, threads, routers, counted))
        rooms[-1].begin(slots)
        return rooms[-1]

    yield make
    for room in rooms:
        room.close()


def allowed(room, workers):
    with room.allowing(workers):
        return True


def three_routers(said):
    return replace(said, of=3) if said.role == "router" else said


def test_more_workers_than_threads_beside_the_routers_are_refused(room_of):
    room = room_of(8, 2, three_routers)
    assert allowed(room, 7)  # routers are not known yet
    assert room.counted(hello("worker")) == hello("worker")
    assert room.counted(hello("router")).of == 3
    assert allowed(room, 5)
    with pytest.raises(UsageError, match="8 threads cannot run 6 workers beside 3 input partitions"):
        allowed(room, 6)
    with pytest.raises(UsageError, match="8 threads cannot run 5 workers beside 4 input partitions"):
        allowed(room_of(8, 2, session="as the broker says", routers=4), 5)


def test_workers_that_run_already_and_sessions_whose_threads_are_not_known_are_not_refused(room_of):
    assert allowed(room_of(4, 6), 6)
    assert allowed(room_of(None, 1), 600)
    room = room_of(8, 2, session="another")
    room.resize(7)
    room.counted(hello("router"))
    assert allowed(room, 7)


def test_what_other_queries_of_the_session_have_is_not_free(room_of):
    first, second, elsewhere = room_of(12, 2), room_of(12, 2, three_routers), room_of(12, 2, session="another")
    second.counted(hello("router"))
    first.wanted = lambda: 6
    with pytest.raises(UsageError, match="beside 1 input partitions and 5 tasks of other queries"):
        allowed(first, 7)
    with pytest.raises(UsageError, match="7 tasks of other queries"):
        allowed(second, 3)
    assert allowed(second, 2)
    assert allowed(elsewhere, 11)
    first.wanted = lambda: 3  # a command that another one has taken the place of
    assert allowed(second, 5)
    first.close()
    first.close()
    assert allowed(second, 9)


def test_what_was_allowed_and_not_asked_for_stays_free(room_of):
    first, second = room_of(12, 2), room_of(12, 2)
    assert allowed(first, 8)
    with pytest.raises(UsageError, match="no such policy"), first.allowing(8):
        raise UsageError("There is no such policy.")
    assert allowed(second, 8)


def test_two_queries_are_not_allowed_the_same_threads_at_a_time(room_of):
    first, second = room_of(12, 2), room_of(12, 2)
    with ThreadPoolExecutor() as pool, first.allowing(8):
        waiting = pool.submit(allowed, second, 8)
        with pytest.raises(TimeoutError):
            waiting.result(0.2)
        first.wanted = lambda: 8
    with pytest.raises(UsageError, match="9 tasks of other queries"):
        waiting.result(30)


def test_a_query_begins_beside_others_only_where_they_leave_it_threads(room_of):
    first, third = room_of(12, 6), room_of(12, 40, session="alone, and Spark refuses it")
    with pytest.raises(UsageError, match="cannot run 5 workers beside 1 input partitions and 7 tasks"):
        room_of(12, 5)
    first.close()
    third.close()


@pytest.mark.parametrize(("master", "threads"), [
    ("local[6,4]", 6), ("local[6]", 6), ("local", 1), (None, 1), ("spark://a:7077", None), ("yarn", None),
])  # fmt: skip
def test_threads_are_those_of_a_local_master(master, threads):
    assert threads_of(master) == threads
