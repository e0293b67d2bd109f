"""However epochs are cut and bins moved, a query answers as the events say; Q3 to Q8 against answers from scratch."""

import json
from collections import Counter
from dataclasses import dataclass
from random import Random

import numpy as np
import pytest
from auctions import FROM_SCRATCH, answers, bid, ends, random_events, rows
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from staged import TwoStages, query_run
from timed import TimedRun, close_all, spread

from impls.operators.nexmark import make
from impls.protocol.mechanism import Mechanism
from impls.protocol.moves import movable, pull_plan

pytestmark = pytest.mark.sampled(3)

_SETTINGS = settings(
    max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@pytest.fixture(autouse=True)
def closed():
    yield
    close_all()


@dataclass(frozen=True)
class Restless(Mechanism):
    """Moves some bins in some epochs, on demand or not, and lets others wait for their state: all by the seed."""

    seed: int

    def plan(self, view):
        random = Random(self.seed * 1000 + view.epoch)
        bins = movable(view).bins
        some = [bin_ for bin_ in bins.tolist() if random.random() < 0.4]
        on_demand = random.random() < 0.5
        return pull_plan(view, np.array(some, np.intp), on_demand=on_demand, budget_bytes=1 if on_demand else None)


def restless(run, seed):
    """Lets the mechanism of a run, of each stage, be the restless one."""
    for one in run.runs if isinstance(run, TwoStages) else (run,):
        one.controller._mechanism = Restless(seed)
    return run


def multiset(found):
    return Counter(json.dumps(answer, sort_keys=True) for answer in found)


@pytest.mark.parametrize("name", FROM_SCRATCH)
@given(seed=st.integers(0, 10_000), data=st.data())
@_SETTINGS
def test_epochs_cut_anywhere_answer_as_the_events_say(tmp_path_factory, name, seed, data):
    events = random_events(seed, 80)
    cuts = sorted(data.draw(st.sets(st.integers(1, 79), max_size=8)))
    run = answers(tmp_path_factory.mktemp("cut"), name, events, cuts)
    assert run.multiset() == multiset(FROM_SCRATCH[name](events))
    assert run.total("late") == 0
    close_all()


@pytest.mark.lengthy
@pytest.mark.parametrize("name", FROM_SCRATCH)
@given(seed=st.integers(0, 10_000))
@_SETTINGS
def test_any_schedule_of_moves_changes_nothing(tmp_path_factory, name, seed):
    events, random = random_events(seed, 80), Random(seed)
    run = restless(query_run(tmp_path_factory.mktemp("moved"), name, partitions=2), seed)
    left = list(events)
    while left:
        if random.random() < 0.3:
            run.move(spread(random.randrange(1000), random.choice([1, 2, 4])))
        size = random.randrange(0, 12)
        run.epoch(rows(name, left[:size], partitions=2) if size > 1 else rows(name, left[:size]))
        left = left[size:]
    far = rows(name, ends(name))
    run.epoch(far + [(1, key + 1, event) for _, key, event in far])
    run.settle()
    assert run.multiset() == multiset(FROM_SCRATCH[name](events))
    assert run.total("late") == 0
    close_all()


@given(seed=st.integers(0, 10_000))
@_SETTINGS
def test_moves_and_restarts_let_each_bid_count_once_in_processing_time(tmp_path_factory, seed):
    random, now, sent = Random(seed), [0], Counter()
    run = restless(TimedRun(tmp_path_factory.mktemp("clock"), make("q12", partitions=1)), seed)
    run.driver.now_ms = lambda: now[0]
    for _ in range(12):
        if random.random() < 0.3:
            run.move(spread(random.randrange(1000), random.choice([1, 2, 4])))
        bids = [bid(random.randrange(5), 0, 1, bidder=random.randrange(9)) for _ in range(random.randrange(6))]
        sent.update(event["bidder"] for event in bids)
        run.epoch(rows("q12", bids))
        if random.random() < 0.2:
            run.again(rows("q12", bids))
        now[0] += random.randrange(6_000)
    run.settle()
    for _ in range(2):
        now[0] += 10_000
        run.epoch()
    counted = Counter()
    for row in run.results():
        counted[row["bidder"]] += row["bids"]
    assert counted == sent
    assert all((row["start"] % 10_000, row["end"] - row["start"]) == (0, 10_000) for row in run.results())
    close_all()


@pytest.mark.parametrize("mechanism", ["megaphone-batched", "meces"])
@pytest.mark.parametrize("name", FROM_SCRATCH)
def test_a_rebalance_and_a_rescale_with_restarts_and_lost_state_change_nothing(tmp_path, name, mechanism):
    events = random_events(7, 120)
    run = query_run(tmp_path, name, mechanism=mechanism)
    for at in range(0, 120, 8):
        if at in {32, 72}:
            run.move(spread(at, 4 if at == 32 else 2))
        run.epoch(rows(name, events[at : at + 8]))
        if at in {40, 80}:
            run.restart()
            run.again(rows(name, events[at : at + 8]))
        if at in {48, 96}:
            run.lose(at // 48 - 1)
    run.epoch(rows(name, ends(name)))
    run.settle()
    assert run.multiset() == multiset(FROM_SCRATCH[name](events))
    assert any(report.recovered for record in run.records for report in record.reports)
