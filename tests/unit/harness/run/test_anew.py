"""A run on a busy machine is made anew up to a limit, from nothing but its parameters; then it stays marked."""

import pytest

from harness.experiment.description import Run
from harness.experiment.make import make_experiment
from harness.files import write_json
from harness.results.entry import ENTRY_FILE
from harness.run.runs import busy_runs, until_quiet
from harness.suites.bench import bench
from impls.errors import UsageError


class Notes:
    """A watcher that keeps what it is told."""

    def __init__(self):
        self.notes = []

    def note(self, text):
        self.notes.append(text)


@pytest.fixture
def carried_out(monkeypatch):
    """Replaces the runs' processes: a run is busy as often as the test says."""
    busy, begun = {}, []

    def carry_out(runs, folder, _view, _relay=None):
        for run in runs:
            place = folder / run.folder
            if (place / "done").exists():
                continue
            assert not (place / "epochs.jsonl").exists(), "what the first one left is gone"
            begun.append(run.mechanism)
            state = "busy" if begun.count(run.mechanism) <= busy.get(run.mechanism, 0) else "quiet"
            write_json(place / ENTRY_FILE, {"machine": state})
            (place / "epochs.jsonl").touch()
            (place / "done").touch()

    monkeypatch.setattr("harness.run.runs.run_all", carry_out)
    return busy, begun


@pytest.fixture
def runs(tmp_path):
    made = make_experiment(mechanism="none,megaphone-batched", keys="1000").runs()
    for run in made:
        (tmp_path / run.folder).mkdir()
        write_json(tmp_path / run.folder / "run.json", run.to_json())
    return made


def test_only_busy_runs_are_made_anew(carried_out, runs, tmp_path):
    busy, begun = carried_out
    busy["none"] = 1
    view = Notes()
    until_quiet(runs, tmp_path, view, 2)
    assert begun == ["none", "megaphone-batched", "none"]
    assert busy_runs(runs, tmp_path) == []
    assert [("00-none-r0" in note, "1 of 2" in note) for note in view.notes] == [(True, True)]
    assert Run.read(tmp_path / runs[0].folder) == runs[0]


def test_the_limit_leaves_the_mark(carried_out, runs, tmp_path):
    busy, begun = carried_out
    busy["none"] = 9
    until_quiet(runs, tmp_path, Notes(), 2)
    assert begun.count("none") == 3
    assert [run.mechanism for run in busy_runs(runs, tmp_path)] == ["none"]
    until_quiet(runs, tmp_path, Notes(), 0)
    assert begun.count("none") == 3, "without a limit nothing is made anew"


def test_resume_begins_the_busy_runs_of_a_finished_result_anew(tmp_path, monkeypatch):
    experiment = make_experiment(mechanism="none,megaphone-batched", keys="1000")
    with pytest.raises(UsageError, match="none with a run on a busy machine"):
        bench(experiment, tmp_path, resume=True)
    folder = tmp_path / "20260101-000000-key-count"
    for run, state in zip(experiment.runs(), ("busy", "quiet"), strict=True):
        place = folder / "runs" / run.folder
        place.mkdir(parents=True)
        write_json(place / "run.json", run.to_json())
        write_json(place / ENTRY_FILE, {"machine": state})
        (place / "done").touch()
    write_json(folder / "experiment.json", {**experiment.to_json(), "digest": experiment.digest()})
    (folder / "done").touch()
    left = []

    def carry_out(runs, place, _view, *_, **__):
        left.extend(run.mechanism for run in runs if not (place / "runs" / run.folder / "done").exists())
        return 0

    monkeypatch.setattr("harness.suites.bench.run_and_report", carry_out)
    assert bench(experiment, tmp_path, resume=True) == (folder, 0)
    assert left == ["none"]
