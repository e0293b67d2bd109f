"""Every mechanism in simulation: counts right, one owner per bin, the goal reached in a bounded number of epochs."""

import numpy as np
import pytest
from dictionaries import DROP_ENTRIES, KEYS_PER_BIN
from hypothesis import given, settings
from hypothesis import strategies as st
from simulator import Simulation

from impls import catalog
from impls.placement import goal, initial

BINS = 32
DROPS_AN_EPOCH = DROP_ENTRIES // KEYS_PER_BIN
MECHANISMS = [name for name in catalog.names() if name != "none"]
SCENARIOS = {
    "rebalance": (4, [lambda now: np.roll(now, 3)]),
    "grow": (2, [lambda now: goal("minimal_move", now, 5)]),
    "shrink": (5, [lambda now: goal("minimal_move", now, 2)]),
    "there and back": (4, [lambda now: goal("contiguous", now, 7), lambda now: goal("contiguous", now, 4)]),
    "nothing to do": (3, [lambda now: now]),
}


def settled(run: Simulation) -> None:
    """The state after a migration: every count right, every bin once and at its goal, stale copies dropped."""
    for _ in range(2 + BINS // DROPS_AN_EPOCH):
        run.step()
    assert run.counts() == run.truth
    assert np.array_equal(run.controller.location, run.controller.goal)
    assert run.cluster.copies() == BINS
    assert not run.cluster.queued()


@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("seed", [1, 2])
def test_the_goal_is_reached_and_nothing_is_lost(name, scenario, seed):
    workers, goals = SCENARIOS[scenario]
    run = Simulation(initial(BINS, workers), catalog.make(name), seed)
    for _ in range(3):
        run.step()
    for make in goals:
        run.command(make(run.controller.goal))
        run.until_done(BINS + 2)
        settled(run)
    assert sum(type(event).__name__ == "MigrationDone" for event in run.events) == len(goals)


@pytest.mark.parametrize("name", MECHANISMS)
def test_a_command_during_a_migration_takes_its_place(name):
    run = Simulation(initial(BINS, 4), catalog.make(name), 3)
    run.command(goal("contiguous", run.controller.goal, 7))
    run.step()
    run.command(goal("minimal_move", run.controller.goal, 3))
    run.until_done(2 * BINS)
    settled(run)


@pytest.mark.sampled(5)
@pytest.mark.lengthy
@pytest.mark.parametrize("name", MECHANISMS)
@given(data=st.data())
@settings(max_examples=25)
def test_a_driver_that_crashes_at_any_epoch_rebuilds_its_state_from_the_journals(name, data):
    seed = data.draw(st.integers(0, 1000), "seed")
    crashes = data.draw(st.frozensets(st.integers(0, 20)), "crashes")
    runs = []
    for crash_at in (frozenset(), crashes):
        run = Simulation(initial(BINS, 4), catalog.make(name), seed, crash_at)
        run.step()
        run.command(goal("contiguous", run.controller.goal, 6))
        run.until_done(BINS + 2)
        settled(run)
        runs.append(run)
    assert runs[0].digest() == runs[1].digest()


@pytest.mark.parametrize("name", MECHANISMS)
def test_one_seed_gives_one_digest(name):
    def digest(seed: int) -> str:
        run = Simulation(initial(BINS, 4), catalog.make(name), seed)
        run.command(goal("contiguous", run.controller.goal, 6))
        for _ in range(40):
            run.step()
        return run.digest()

    assert digest(5) == digest(5)
    assert digest(5) != digest(6)


def test_the_control_never_moves_anything():
    run = Simulation(initial(BINS, 4), catalog.make("none"), 1)
    run.command(goal("contiguous", run.controller.goal, 6))
    for _ in range(10):
        run.step()
    assert run.controller.migrating
    assert run.counts() == run.truth
    assert np.array_equal(run.controller.location, run.initial)
