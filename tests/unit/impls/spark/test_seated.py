"""Seats are made anew when executors come or go, and so that a worker stays where its state is; without Spark."""

from types import SimpleNamespace

import numpy as np
import pytest
from clocks import set_clock

from impls.protocol.order import EpochOrder
from impls.protocol.plan import EpochPlan, WrittenPlan
from impls.protocol.seats import Seating
from impls.spark import executor
from impls.spark.executor import SeatedExecutor

SLOTS_EACH = 2
BATCH = SimpleNamespace(sparkSession=None)


class World:
    """Executors, one on each host, and what has been made on them; `clock` has the time."""

    def __init__(self, monkeypatch):
        self.hosts, self.made = "ab", []
        monkeypatch.setattr(executor, "_await_executors", lambda _spark: frozenset(self.hosts))
        monkeypatch.setattr(executor, "_slots", lambda _batch: SLOTS_EACH * len(self.hosts))
        monkeypatch.setattr(executor.Anchor, "make", self.make)
        self.clock = set_clock(monkeypatch, "impls.spark.executor", now=0.0)
        self.executor = SeatedExecutor(None)

    def make(self, _spark, seats):
        self.made.append(seats)
        each = seats // len(self.hosts)
        return SimpleNamespace(hosts=tuple(host for host in self.hosts for _ in range(each)), drop=lambda: None)

    def epoch(self, homes, moving=()):
        """Runs an epoch of four workers that have state at home, and returns the numbers of seats made for it."""
        self.made.clear()
        plan = WrittenPlan(0, 1, 4, EpochPlan(np.zeros(4, np.int32)))
        self.executor._anchored(BATCH, EpochOrder(plan, seating=Seating(homes=tuple(enumerate(homes))), moving=moving))
        return list(self.made)


@pytest.fixture
def world(monkeypatch):
    return World(monkeypatch)


def test_seats_are_made_once_while_nothing_changes(world):
    assert world.epoch("abab") == [4]
    assert world.epoch("abab") == []
    assert world.epoch("aabb") == [], "two on each host have room in any order"


def test_workers_of_a_lost_host_share_slots_and_stay_when_it_comes_back(world):
    world.epoch("aabb")
    world.clock.now, world.hosts = 100.0, "b"
    assert world.epoch("aabb") == [4], "two rounds of two slots"
    world.hosts = "ab"
    assert world.epoch("bbbb") == [4, 8], "four on b have room on four of eight seats"
    assert world.epoch("bbbb") == []


def test_seats_are_fewer_again_when_workers_are_spread_and_nothing_moves(world):
    world.clock.now = 100.0
    assert world.epoch("bbbb") == [4, 8]
    assert world.epoch("aabb", moving=(1,)) == [], "a new anchor in a migration is a pause"
    assert world.epoch("aabb") == [4]


def test_in_the_first_minute_workers_spread_over_executors_that_come(world):
    world.hosts = "b"
    assert world.epoch("bbbb") == [4]
    world.clock.now, world.hosts = 10.0, "ab"
    assert world.epoch("bbbb") == [4]
