"""`./inv profile` draws where a running process spends its time."""

import subprocess
import sys

import psutil
import pytest

from harness.suites import profile
from harness.suites.profile import Sampler, read_options

BUSY = "def spins():\n    while True:\n        sum(range(1000))\nspins()\n"


@pytest.fixture
def busy():
    with subprocess.Popen([sys.executable, "-c", BUSY]) as process:
        yield psutil.Process(process.pid)
        process.kill()


@pytest.mark.capability
def test_a_flame_graph_names_the_function_that_computes(busy, monkeypatch):
    monkeypatch.setattr(profile, "_driver", lambda: busy)
    monkeypatch.setattr(profile, "_WARM_S", 0.5)
    sampler = Sampler(1)
    sampler.start()
    sampler.end()
    if "ermission" in sampler.failure:
        pytest.skip(sampler.failure)
    assert sampler.failure == ""
    assert set(sampler.graphs) == {"driver", "worker"}
    for graph in sampler.graphs.values():
        assert graph.startswith(b"<?xml")
        assert b"spins" in graph


def test_a_run_without_a_load_is_said_to_have_none():
    sampler = Sampler(1)
    sampler.start()
    sampler.end()
    assert (sampler.graphs, sampler.failure) == ({}, "The run had no load that lasted long enough to be sampled.")


def test_one_run_of_a_live_query_in_real_time_is_what_is_profiled():
    experiment, seconds = read_options({"seconds": 3.0, "workers": None})
    [run] = experiment.runs()
    assert (run.mechanism, run.real_time, experiment.workers, experiment.workload) == (
        "megaphone-batched",
        True,
        2,
        "hash",
    )
    assert experiment.duration_s > seconds == 3
    assert [run.real_time for run in read_options({"mode": "micro-batch"})[0].runs()] == [False]
