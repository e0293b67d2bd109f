"""How many workers a session can run in real time."""

from dataclasses import replace

import pytest

from impls.errors import UsageError
from impls.protocol.session import Hello
from impls.spark.master import threads_of
from impls.spark.realtime.start import Room


def hello(role):
    return Hello(role, 0, 0, "run", 0, 0)


def test_more_workers_than_threads_beside_the_routers_are_refused():
    room = Room(8, 2, lambda said: replace(said, of=3) if said.role == "router" else said)
    room.check(7)  # routers are not known yet
    assert room.counted(hello("worker")) == hello("worker")
    assert room.counted(hello("router")).of == 3
    room.check(5)
    with pytest.raises(UsageError, match="8 threads cannot run 6 workers beside 3 input partitions"):
        room.check(6)


def test_workers_that_run_already_and_sessions_whose_threads_are_not_known_are_not_refused():
    Room(4, 6, lambda said: said).check(6)
    Room(None, 1, lambda said: said).check(600)


@pytest.mark.parametrize(("master", "threads"), [
    ("local[6,4]", 6), ("local[6]", 6), ("local", 1), (None, 1), ("spark://a:7077", None), ("yarn", None),
])  # fmt: skip
def test_threads_are_those_of_a_local_master(master, threads):
    assert threads_of(master) == threads
