"""Every mechanism under every kind of migration, in the simulator: nothing lost, one owner per bin, goal reached."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))

from crash_simulator import OnDemand, Simulation

from impls import catalog
from impls.placement import goal, initial

BINS, WORKERS, EPOCHS = 32, 4, 120
CASES = [
    *((name, lambda name=name: catalog.make(name)) for name in catalog.names()),
    ("batched with gaps", lambda: catalog.make("megaphone-batched", bins_per_pair=1, gap_epochs=2)),
    ("on demand", OnDemand),
    ("on demand, one bin", lambda: OnDemand(0)),
]


def rescale(workers):
    return lambda current: goal("minimal_move", current, workers)


def shuffle(seed):
    return lambda current: np.random.default_rng(seed).permutation(current).astype(np.int32)


def same(current):
    return current


def home(_current):
    return initial(BINS, WORKERS)


SCENARIOS = {
    "rebalance": {5: [shuffle(1)]},
    "grow": {5: [rescale(7)]},
    "shrink": {5: [rescale(2)]},
    "there and back": {5: [rescale(6)], 50: [home]},
    "command during a migration": {5: [shuffle(1)], 7: [shuffle(2)], 8: [rescale(3)]},
    "back during a migration": {5: [shuffle(1)], 7: [home]},
    "two commands at once": {5: [shuffle(1), rescale(8)]},
    "no-op": {5: [same]},
    "before the first epoch": {0: [rescale(7)]},
}


def simulate(make, scenario, seed=1, epochs=EPOCHS, **options):
    return Simulation(initial(BINS, WORKERS), make(), SCENARIOS[scenario], seed, **options).run(epochs)


def check(run, name, scenario):
    assert run.counts() == {key: count for key, count in run.truth.items() if count}
    assert not run.controller.queued.any()
    begun = [e["id"] for e in run.events if e["kind"] == "migration_begin"]
    ended = [e["id"] for e in run.events if e["kind"] == "migration_end"]
    commands = sum(len(made) for made in SCENARIOS[scenario].values())
    assert list(dict.fromkeys(begun)) == [f"c{i}" for i in range(commands)]
    if name == "none" and scenario != "no-op":
        assert np.array_equal(run.controller.location, initial(BINS, WORKERS))
        return
    assert run.controller.misplaced == 0
    assert not run.controller.migrating
    assert np.array_equal(run.controller.routing, run.controller.location)
    assert set(begun) == set(ended)
    last = max(e["epoch"] for e in run.events if e["kind"] == "migration_end")
    assert last <= max(SCENARIOS[scenario]) + 3 * BINS + 2


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize(("name", "make"), CASES, ids=[name for name, _ in CASES])
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.sampled(10)
def test_the_goal_is_reached_and_no_record_is_lost(name, make, scenario, seed):
    check(simulate(make, scenario, seed), name, scenario)


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize(("name", "make"), CASES, ids=[name for name, _ in CASES])
@pytest.mark.parametrize("rebase", [0.0, 0.4], ids=["whole journals", "bases"])
@pytest.mark.sampled(5)
def test_a_driver_that_dies_at_any_point_changes_nothing(name, make, scenario, rebase):
    run = simulate(make, scenario, crash=0.15, rebase=rebase)
    assert run.crashes > 10
    check(run, name, scenario)
    assert run.counts() == simulate(make, scenario).counts()


@pytest.mark.sampled(4)
@pytest.mark.parametrize("make", [make for _, make in CASES], ids=[name for name, _ in CASES])
def test_one_seed_gives_one_run(make):
    once, twice = (simulate(make, "command during a migration", crash=0.1).digest() for _ in range(2))
    assert once == twice
    assert once != simulate(make, "command during a migration", seed=2, crash=0.1).digest()


@pytest.mark.lengthy
@given(
    seed=st.integers(0, 10_000),
    case=st.sampled_from(CASES),
    scenario=st.sampled_from(list(SCENARIOS)),
    crash=st.floats(0.05, 0.3),
    rebase=st.floats(0.05, 1.0),
)
@settings(max_examples=25, deadline=None)
def test_a_base_and_the_rest_of_the_journals_tell_the_same_as_whole_journals(seed, case, scenario, crash, rebase):
    """The simulator compares both at every crash, and the driver before with the one after it."""
    run = simulate(case[1], scenario, seed, crash=crash, rebase=rebase, restart_assignment=initial(BINS, 2))
    check(run, case[0], scenario)


@pytest.mark.lengthy
@pytest.mark.parametrize(("scenario", "stops"), [("rebalance", 1), ("there and back", 2), ("no-op", 0)])
def test_a_restart_stops_the_query_once_for_each_migration(scenario, stops):
    """A crash after the stop is noted does not stop the query again."""
    for seed in range(8):
        run = simulate(lambda: catalog.make("runtime-restart"), scenario, seed, crash=0.3)
        assert run.stops == stops
    pulls = [pull for plan in map(json.loads, run.logs["plans"]) if plan["from_checkpoint"] for pull in plan["pulls"]]
    assert bool(pulls) == bool(stops)


def test_a_command_during_a_restart_needs_a_stop_of_its_own():
    run = simulate(lambda: catalog.make("runtime-restart"), "back during a migration", crash=0.3)
    assert run.stops == 2


def test_a_driver_started_with_another_number_of_workers_goes_on_where_the_last_one_was():
    run = simulate(lambda: catalog.make("megaphone-fluid"), "grow", crash=0.3, restart_assignment=initial(BINS, 2))
    check(run, "megaphone-fluid", "grow")


@pytest.mark.parametrize("name", catalog.names())
def test_a_migration_left_half_done_is_continued_under_another_mechanism(name):
    """A checkpoint may be continued with another mechanism than the one that left queues and bins under way."""
    run = Simulation(initial(BINS, WORKERS), OnDemand(0), {5: [shuffle(1)], 7: [shuffle(2)]}).run(9)
    assert run.controller.queued.any()
    run.controller._mechanism = run.mechanism = catalog.make(name)
    run.run(EPOCHS)
    assert run.counts() == {key: count for key, count in run.truth.items() if count}
    assert not run.controller.queued.any()
    assert name == "none" or run.controller.misplaced == 0


@pytest.mark.lengthy
def test_a_thousand_workers_are_no_trouble():
    given = {2: [lambda current: np.roll(current, 1)]}
    run = Simulation(np.arange(1024, dtype=np.int32), catalog.make("megaphone-batched"), given).run(8)
    assert run.controller.misplaced == 0
