"""How many workers a session can run in real time."""

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

    def make(threads, slots, counted=lambda said: said, *, session="one"):
        rooms.append(Room(session, threads, slots, counted))
        return rooms[-1]

    yield make
    for room in rooms:
        room.close()


def three_routers(said):
    return replace(said, of=3) if said.role == "router" else said


def test_more_workers_than_threads_beside_the_routers_are_refused(room_of):
    room = room_of(8, 2, three_routers)
    room.check(7)  # routers are not known yet
    assert room.counted(hello("worker")) == hello("worker")
    assert room.counted(hello("router")).of == 3
    room.check(5)
    with pytest.raises(UsageError, match="8 threads cannot run 6 workers beside 3 input partitions"):
        room.check(6)


def test_workers_that_run_already_and_sessions_whose_threads_are_not_known_are_not_refused(room_of):
    room_of(4, 6).check(6)
    room_of(None, 1).check(600)


def test_what_other_queries_of_the_session_have_is_not_free(room_of):
    first, second, elsewhere = room_of(12, 2), room_of(12, 2, three_routers), room_of(12, 2, session="another")
    second.counted(hello("router"))
    first.check(6)
    with pytest.raises(UsageError, match="beside 1 input partitions and 5 tasks of other queries"):
        first.check(7)
    with pytest.raises(UsageError, match="7 tasks of other queries"):
        second.check(3)  # the slots that the first has taken
    second.check(2)
    elsewhere.check(11)
    first.close()
    first.close()
    second.check(9)


def test_workers_that_a_checkpoint_has_take_threads_too(room_of):
    first, second = room_of(12, 2), room_of(12, 1)
    first.take(8)
    with pytest.raises(UsageError):
        second.check(3)
    second.check(2)


@pytest.mark.parametrize(("master", "threads"), [
    ("local[6,4]", 6), ("local[6]", 6), ("local", 1), (None, 1), ("spark://a:7077", None), ("yarn", None),
])  # fmt: skip
def test_threads_are_those_of_a_local_master(master, threads):
    assert threads_of(master) == threads
