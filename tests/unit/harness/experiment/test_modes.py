"""Mechanisms are compared in Spark's two modes: runs, names, and what real time has not."""

import json

import pytest

from harness.experiment import make
from harness.experiment.description import Experiment, Run
from harness.experiment.make import experiment_from, make_experiment
from harness.experiment.parameters import MICRO_BATCH, REAL_TIME
from harness.files import write_json
from harness.suites.conformance.run import selected
from harness.suites.nexmark import suite_from
from harness.suites.sweep import make_grid
from impls import catalog
from impls.errors import UsageError

BOTH = (MICRO_BATCH, REAL_TIME)


@pytest.fixture(autouse=True)
def _spark(monkeypatch):
    """Spark's version is one that has the mode, whatever is installed."""
    monkeypatch.setattr(make, "version", lambda _package: "4.3.0")


def test_every_mechanism_runs_in_every_mode_and_a_baseline_in_its_own():
    experiment = Experiment(mechanisms=("native-repartition", "meces", "native-real-time"), modes=BOTH, rounds=3)
    found = [(run.mechanism, run.mode) for run in experiment.runs()]
    once = [
        ("native-repartition", MICRO_BATCH), ("meces", MICRO_BATCH), ("meces", REAL_TIME),
        ("native-real-time", REAL_TIME),
    ]  # fmt: skip
    assert found[:4] == once
    assert [sorted(found[at : at + 4]) for at in (4, 8)] == [sorted(once)] * 2
    assert found[4:8] != once or found[8:] != once, "later rounds are in an order that is drawn"


def test_a_run_is_named_by_its_mode_unless_the_mechanism_s_name_says_it():
    experiment = Experiment(mechanisms=("meces", "native-real-time"), modes=BOTH, fault="worker@migrating")
    assert [(run.title, run.folder) for run in experiment.runs()] == [
        ("meces", "00-meces-r0"),
        ("meces with worker@migrating", "01-meces-r0-fault"),
        ("meces, real time", "02-meces-real-time-r0"),
        ("meces, real time with worker@migrating", "03-meces-real-time-r0-fault"),
        ("native-real-time", "04-native-real-time-r0"),
        ("native-real-time with worker@migrating", "05-native-real-time-r0-fault"),
    ]


@pytest.mark.parametrize("place", range(6))
def test_a_run_is_read_as_it_was_written(tmp_path, place):
    experiment = Experiment(mechanisms=("meces", "native-real-time"), modes=BOTH, fault="worker@migrating")
    run = experiment.runs()[place]
    write_json(tmp_path / "run.json", run.to_json())
    assert Run.read(tmp_path) == run


def test_a_run_of_before_there_were_modes_is_of_micro_batches(tmp_path):
    data = Run(Experiment(mechanisms=("meces",)), "meces", 0, 0).to_json()
    for name in ("mode", "modes", "slots", "batch"):
        del data[name]
    (tmp_path / "run.json").write_text(json.dumps(data))
    assert (Run.read(tmp_path).mode, Run.read(tmp_path).experiment.modes) == (MICRO_BATCH, (MICRO_BATCH,))


def test_slots_are_the_most_workers_unless_given():
    run = Run(Experiment(workers=2, workers_goal=5), "none", 0, 0, mode=REAL_TIME)
    assert (run.slots, Run(Experiment(slots=7), "none", 0, 0, mode=REAL_TIME).slots) == (5, 7)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"mode": "batch"}, "micro-batch or real-time"),
        ({"mode": ""}, "No mode is named"),
        ({"slots": 8}, "belong to --mode real-time"),
        ({"mode": "real-time", "batch": "soon"}, "such as '60 seconds'"),
        ({"mode": "real-time", "slots": 3}, "too few for 4 workers"),
        ({"mode": "real-time", "cluster": 2}, "leave out --cluster"),
        ({"mode": "real-time", "master": "spark://host:7077"}, "leave out --cluster and --master"),
        ({"mode": "micro-batch,real-time", "log_dir": "s3://bucket/x"}, "local folder"),
        (
            {"mode": "real-time", "mechanism": "none,external-state"},
            "external-state has a store that all workers share",
        ),
        ({"mode": "real-time", "max_offsets_per_trigger": 5}, "leave out --max-offsets-per-trigger"),
        ({"mode": "real-time", "trigger": "5 seconds"}, "leave out --trigger"),
        ({"trigger": "600 minutes"}, "--trigger is at most 99 seconds"),
        ({"trigger": "٣ seconds"}, "--trigger is at most 99 seconds"),
        ({"trigger": "soon"}, "--trigger is at most 99 seconds"),
        ({"mechanism": "native-real-time", "workload": "nexmark"}, "counts keys alone"),
        (
            {"mechanism": "native-real-time", "workload": "hash", "option": "operator=processor"},
            "own operator is count",
        ),
    ],
)
def test_what_real_time_has_not_is_refused_in_one_sentence(given, says):
    with pytest.raises(UsageError) as caught:
        make_experiment(**given)
    assert says in str(caught.value)
    assert str(caught.value).count(".") - str(caught.value).count("4.3") <= 2
    assert "\n" not in str(caught.value)


def test_a_store_that_all_workers_share_is_compared_in_micro_batches_only():
    both = experiment_from({"all": True, "mode": "micro-batch,real-time"})
    assert ("external-state", MICRO_BATCH) in both.compared()
    assert ("external-state", REAL_TIME) not in both.compared()
    assert "external-state" not in experiment_from({"all": True, "mode": "real-time"}).mechanisms
    assert not any(case.mechanism == "external-state" for case in selected(mode=REAL_TIME))
    assert any(case.mechanism == "external-state" for case in selected())


def test_an_older_spark_is_named(monkeypatch):
    monkeypatch.setattr(make, "version", lambda _package: "4.2.0")
    with pytest.raises(UsageError, match=r"needs Spark 4\.3, and here is 4\.2\.0"):
        make_experiment(mode="real-time")
    assert make_experiment(mode="micro-batch").modes == (MICRO_BATCH,)


def test_a_sweep_and_nexmark_take_modes():
    grid = make_grid({"mechanism": "none,meces", "mode": "micro-batch,real-time", "bins": "16,64"})
    assert len({run.folder for run, _ in grid.runs()}) == len(grid.runs()) == 8
    assert sum("meces-real-time-bins16" in run.folder for run, _ in grid.runs()) == 1
    (suite,) = suite_from({"query": "q1", "mode": "real-time", "batch": "30 seconds", "slots": "6"}).experiments
    assert (suite.modes, suite.batch, suite.slots) == ((REAL_TIME,), "30 seconds", 6)


def test_a_baseline_says_its_mode():
    assert {name: catalog.mode_of(name) for name in ("meces", "native-restart", "native-real-time")} == {
        "meces": None, "native-restart": MICRO_BATCH, "native-real-time": REAL_TIME,
    }  # fmt: skip
