"""The comparison of engines: what is run, the figures of a row, what is concluded."""

import numpy as np
import pytest

from harness.experiment.make import make_experiment
from harness.experiment.schedules import plan_for
from harness.suites.engines.figures import cpu_s, longest_gap_s
from harness.suites.engines.said import conclusions
from harness.suites.engines.suite import suite_from
from impls.errors import UsageError


def test_an_experiment_for_each_number_of_keys_with_all_engines_there_and_back():
    suite = suite_from({"keys": "20k,1M"})
    assert [experiment.keys for experiment in suite.experiments] == [20_000, 1_000_000]
    one = suite.experiments[0]
    assert {"megaphone-batched", "flink-adaptive", "kafka-streams-classic"} < set(one.mechanisms)
    assert [(command.at_s, command.workers) for command in plan_for(one)] == [(25.0, 4), (45.0, 2)]
    assert all(run.real_time for run in one.runs())


def test_there_and_back_needs_two_numbers_of_workers():
    with pytest.raises(UsageError, match="needs another number of workers"):
        make_experiment(migration="there-and-back", workers="2", mechanism="none")


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"workload": "dense"}, "counts in an entry per key"),
        ({"workload": "nexmark"}, "no NEXMark query"),
        ({"workload": "hash", "cost_us": 5.0}, "pays for no record"),
        ({"workload": "hash", "fault": "worker@migrating"}, "no fault points"),
        ({"workload": "hash", "migration": "autoscale:policy=ds2,min=1,max=4"}, "no workers that a policy"),
    ],
)
def test_what_another_engine_cannot_do_is_refused(given, why):
    with pytest.raises(UsageError, match=why):
        make_experiment(mechanism="flink-adaptive", workers="2:4", **given)


def test_the_longest_gap_is_that_around_a_rescale():
    done = np.array([1, 2, 3, 3, 7, 8, 20]) * 1_000_000
    assert longest_gap_s(done, 3_500_000, 4_000_000) == 4.0
    assert longest_gap_s(done, 8_500_000, 9_000_000) == 12.0
    assert longest_gap_s(done, 1_500_000, 2_500_000) == 1.0
    assert longest_gap_s(done[:1], 0, 1) is None


def test_processor_time_does_not_fall_when_a_process_ends():
    samples = [{"cpu": {"own": own}} for own in (1_000_000, 3_000_000, 500_000, 1_500_000)]
    assert cpu_s([*samples, {"roles": {}}]) == 3.0


def test_conclusions_are_drawn_from_valid_rows_of_the_same_keys():
    def row(engine: str, peak: float, verdict: str = "valid", keys: int = 1_000) -> dict[str, object]:
        return {"keys": keys, "engine": engine, "verdict": verdict, "peak_ms": peak, "p50_ms": 15.0, "p99_ms": None}

    ours = "megaphone-batched, real time"
    rows = [row(ours, 50.0), row(ours, 150.0), row("flink-adaptive", 400.0), row("flink-adaptive", 1.0, "wrong")]
    (said,) = conclusions([*rows, row("flink-savepoint", 9.0, keys=5)])
    assert said.startswith("1,000 keys, this runtime against flink-adaptive: 0.25 times its highest latency in a ")
    assert said.endswith("rescale, 1.00 times its steady p50.")
