"""Simulated queries on clusters whose hosts, executors, servers and links fail: nothing is lost, doubled or stuck."""

import sys
from collections import Counter
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from chaos.host_parameters import HOST_KINDS, draw_on_hosts
from chaos.query import simulate

# a process that dies leaves its files to the system, an attempt that dies leaves them to the collector
pytestmark = pytest.mark.filterwarnings("ignore:Exception ignored in.*writer:pytest.PytestUnraisableExceptionWarning")
SEEDS = range(24)
SERVED = (1, 20)  # bins come over the network here


@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_goes_wrong_when_hosts_fail(seed):
    outcome = simulate(draw_on_hosts(seed))
    assert outcome.violation is None, outcome.sentence


@pytest.mark.lengthy
@pytest.mark.parametrize("seed", SERVED)
def test_two_runs_of_a_seed_on_hosts_give_one_digest(seed):
    once, twice = (simulate(draw_on_hosts(seed)) for _ in range(2))
    assert once == twice
    assert once.network["bytes"] > 0
    assert once.digest != simulate(draw_on_hosts(seed + 1)).digest


def test_every_kind_of_fault_of_a_host_is_drawn():
    drawn = [draw_on_hosts(seed) for seed in SEEDS]
    kinds = {fault.kind for parameters in drawn for fault in parameters.faults}
    assert set(HOST_KINDS) <= kinds
    assert "host" not in kinds
    assert "hosts" in {kind for parameters in drawn for _, kind, _ in parameters.commands}


@pytest.mark.lengthy
def test_pulls_between_hosts_break_and_are_refused_and_the_checkpoint_has_their_bins():
    seen = Counter()
    for seed in range(3):
        outcome = simulate(draw_on_hosts(seed, host_kinds={"link": 2, "server": 1}, host_faults=12))
        assert outcome.violation is None, outcome.sentence
        seen += outcome.network
    assert min(seen[name] for name in ("bytes", "whole", "broken")) > 0


@pytest.mark.lengthy
def test_without_faults_of_hosts_no_pull_between_them_breaks_once_they_serve():
    quiet = {"faults": 0, "host_faults": 0}
    seen = Counter()
    for seed in range(6):
        drawn = draw_on_hosts(seed, **quiet)
        outcome = simulate(drawn)
        assert outcome.violation is None, outcome.sentence
        assert drawn.wander or outcome.recoveries == 0
        seen += outcome.network
    assert seen["whole"] > 0
    assert set(seen) <= {"bytes", "whole", "busy"}
