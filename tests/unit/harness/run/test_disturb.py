"""`--fault` of a bench: which runs there are, when a fault is armed, and what is refused."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from harness.experiment.description import Run
from harness.experiment.make import make_experiment
from harness.experiment.schedules import STAGES
from harness.files import read_json, write_json
from harness.lab.broker import ExternalBroker
from harness.lab.processes import VARIABLE, disturbed
from harness.run.disturb import Disturbance
from impls.driver.checkpoint import Checkpoint
from impls.errors import UsageError

SMALL = {"keys": "4096", "bins": "16", "rate": "100", "workers": "2:4"}


@pytest.fixture(autouse=True)
def _environment(monkeypatch):
    monkeypatch.setenv(VARIABLE, "")  # else nothing takes away what a test sets
    monkeypatch.delenv(VARIABLE)


def runs(**more) -> list[Run]:
    return make_experiment(**{**SMALL, **more}).runs()


def test_every_mechanism_that_migrates_runs_undisturbed_and_disturbed():
    faults = ["worker@migrating", "broker@migrating"]
    found = runs(mechanism="none,megaphone-fluid", fault=",".join(faults), rounds="2")
    assert [(run.mechanism, run.fault) for run in found if run.round == 0] == [
        ("none", None), *(("megaphone-fluid", fault) for fault in (None, *faults)),
    ]  # fmt: skip
    assert [run.number for run in found] == list(range(8))
    assert len({run.folder for run in found}) == 8
    titles = {f"megaphone-fluid with {fault}" for fault in faults}
    assert {run.title for run in found} == {"none", "megaphone-fluid", *titles}


def test_a_run_is_read_as_it_was_written(tmp_path):
    for run in runs(mechanism="megaphone-fluid", fault="jvm@before-results"):
        write_json(tmp_path / "run.json", run.to_json())
        assert Run.read(tmp_path) == run


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"fault": "mouse@migrating"}, "A fault is VICTIM@POINT"),
        ({"fault": "worker@migrating,"}, "A fault is VICTIM@POINT"),
        ({"fault": "worker"}, "A fault is VICTIM@POINT"),
        ({"fault": "worker@midnight"}, "A fault is VICTIM@POINT"),
        ({"fault": "worker@migrating@third"}, "A fault is VICTIM@POINT"),
        ({"fault": "worker@migrating@second"}, "The query has one stage"),
        ({"fault": "worker@after-plan@second", "workload": "nexmark", "query": "q5"}, "may be of either stage"),
        ({"fault": "worker@migrating", "migration": "none"}, "needs a migration"),
        ({"fault": "broker@migrating", "bootstrap": "localhost:1"}, "this program's own"),
        ({"fault": "worker@during-recovery"}, "lost environment"),
        ({"fault": "jvm@migrating", "cluster": "2"}, "On a cluster a process can kill those of its own host only"),
        ({"fault": "worker@after-plan", "master": "spark://h:7"}, "On a cluster a process can kill those of its own"),
    ],
)
def test_a_fault_that_cannot_be_is_refused_in_a_sentence(more, words):
    with pytest.raises(UsageError, match=words):
        make_experiment(**SMALL, mechanism="megaphone-fluid", **more)


def test_faults_that_a_host_can_inflict_on_itself_are_taken_on_a_cluster():
    for fault in ("worker@migrating", "driver@after-plan"):
        assert make_experiment(**SMALL, mechanism="megaphone-fluid", fault=fault, cluster="2").fault == fault


class Query:
    """A query whose migration is as far as the test says."""

    def __init__(self) -> None:
        self.misplaced = 0

    def status(self) -> dict:
        return {"migrating": self.misplaced > 0, "misplaced": self.misplaced}


def armed_at(folder: Path, mechanism: str) -> list[int]:
    """Returns the numbers of misplaced bins at which the fault was armed, in a migration of eight bins."""
    run = next(run for run in runs(mechanism=mechanism, fault="worker@migrating") if run.fault)
    disturbance, query, broker = Disturbance(run, folder), Query(), ExternalBroker("localhost:1")
    before, goal = np.zeros(16, np.int32), np.repeat([0, 1], 8).astype(np.int32)
    disturbance.watch(query=query, broker=broker, commanded=(before, goal))
    found = []
    for query.misplaced in (8, 7, 6, 5, 4, 3, 2, 1, 0):
        disturbance.watch(query=query, broker=broker)
        if (folder / "fault.json").exists():
            found.append(query.misplaced)
            (folder / "fault.json").unlink()
    return found


def test_a_fault_is_armed_once_in_the_middle_of_a_migration(tmp_path):
    assert armed_at(tmp_path, "megaphone-fluid") == [4]


@pytest.mark.parametrize("mechanism", ["megaphone-all-at-once", "runtime-restart"])
def test_a_migration_of_one_epoch_is_disturbed_from_its_beginning(tmp_path, mechanism):
    assert armed_at(tmp_path, mechanism) == [8]


def test_a_fault_of_a_second_stage_waits_for_the_middle_of_its_migration(tmp_path):
    chosen = {
        "workload": "nexmark",
        "query": "q5",
        "rate": "1000",
        "duration_s": 20,
        "fault": "worker@migrating@second",
    }
    every = make_experiment(mechanism="megaphone-fluid", workers="2:4", bins="16", **chosen).runs()
    run = next(run for run in every if run.fault)
    checkpoint = Checkpoint(tmp_path / "checkpoint" / "second", {"bins": 16})
    checkpoint.close()
    disturbance, broker, armed = Disturbance(run, tmp_path), ExternalBroker("localhost:1"), []
    commanded = np.zeros(16, np.int32), np.repeat([0, 1], 8).astype(np.int32)
    for first, second in [(8, 8), (4, 8), (0, 5), (0, 4), (0, 1)]:
        left = {stage: {"migrating": bool(n), "misplaced": n} for stage, n in zip(STAGES, (first, second), strict=True)}
        query = SimpleNamespace(status=lambda left=left: {"migrating": True, "misplaced": 0, "stages": left})
        disturbance.watch(query=query, broker=broker, commanded=commanded)
        armed.append((tmp_path / "fault.json").exists())
    assert armed == [False, False, False, True, True]
    assert read_json(tmp_path / "fault.json")["query"] == checkpoint.query


def test_an_undisturbed_run_arms_nothing(tmp_path):
    run = runs(mechanism="megaphone-fluid")[0]
    query = Query()
    query.misplaced = 1
    disturbance = Disturbance(run, tmp_path)
    goal = np.ones(16, np.int32)
    disturbance.watch(query=query, broker=ExternalBroker("localhost:1"), commanded=(np.zeros(16, np.int32), goal))
    assert not list(tmp_path.iterdir())


def test_a_fault_that_has_fired_is_not_armed_again(tmp_path):
    run = next(run for run in runs(mechanism="megaphone-fluid", fault="driver@migrating") if run.fault)
    assert not disturbed(tmp_path)
    (tmp_path / "fault.json.fired").write_text('{"id": "fault.json", "at_us": 1, "pid": 1}\n')
    assert disturbed(tmp_path)
    assert armed_at(tmp_path, "megaphone-fluid") == []
    assert read_json(tmp_path / "fault.json") == {}
    assert run.fault == "driver@migrating"
