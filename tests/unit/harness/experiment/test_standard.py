"""What `./inv bench` compares when it is not told what."""

import pytest

from harness.experiment.make import experiment_from
from harness.experiment.parameters import DEFAULT_MECHANISMS, MODES
from impls import catalog


def test_the_standard_comparison_has_sparks_own_restart_and_counts_as_spark_does():
    found = experiment_from({"rounds": "2", "keys": "100k"})
    assert set(found.mechanisms) & set(catalog.natives()) == {"native-repartition", "native-real-time"}
    assert {("megaphone-batched", mode) for mode in MODES} < set(found.compared())
    assert len(found.runs()) == 2 * 4
    assert (found.workload, found.keys, found.rounds, found.name) == ("hash", 100_000, 2, "hash-count")


def test_there_are_as_many_workers_as_cores_unless_it_is_said_how_many():
    assert 2 <= experiment_from({}).workers == experiment_from({}).workers_goal <= 4
    assert experiment_from({}).migration == "pattern"
    found = experiment_from({"workers": "1:8"})
    assert (found.workers, found.workers_goal, found.migration) == (1, 8, "rescale")


@pytest.mark.parametrize(
    "choice",
    [
        {"workload": "dense"},
        {"mechanism": "meces"},
        {"all": True},
        {"workload": "nexmark", "query": "q4"},
        {"fault": "worker@migrating"},
        {"cost_us": "10"},
        {"workload": "hash", "value_bytes": "8"},
        {"quick": True},
    ],
)
def test_a_choice_of_what_to_compare_leaves_it(choice):
    found = experiment_from(choice)
    assert not set(found.mechanisms) & set(catalog.natives())
    assert found.name != "hash-count"


def test_a_workload_alone_is_compared_with_the_mechanisms_of_the_runtime():
    assert experiment_from({"workload": "hash"}).mechanisms == DEFAULT_MECHANISMS


@pytest.mark.parametrize("given", [{"cluster": "2"}, {"master": "spark://host:7077"}, {"mode": "micro-batch"}])
def test_the_standard_comparison_is_in_epochs_where_real_time_cannot_be_had_or_is_not_asked_for(given):
    assert {mode for _, mode in experiment_from(given).compared()} == {"micro-batch"}
    assert "native-repartition" in experiment_from(given).mechanisms
