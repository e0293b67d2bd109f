"""Broker and Spark of the next run start while the one before is checked, also across the experiments of a suite."""

import pytest

from harness.experiment.make import make_experiment
from harness.files import write_json
from harness.lab.child import ProcessEnd
from harness.run.runs import Relay, run_all
from harness.suites.bench import Suite, measure_in_turn


class Process:
    """Stands for a run's process."""

    def __init__(self, folder, log):
        self.folder, self._log = folder, log
        log.append(("starts", *folder.parts[-1:]))

    def go(self):
        self._log.append(("goes", self.folder.name))

    def lines(self):
        return iter([{"phase": "load"}, {"phase": "checking"}])

    def wait(self):
        (self.folder / "done").touch()
        return ProcessEnd(0)

    def close(self):
        self._log.append(("ends", self.folder.name))


class View:
    def begin(self, _run): ...

    def progress(self, _run, _line): ...

    def end(self, _run, _folder): ...

    def skipped(self, _run): ...

    def note(self, _text): ...


@pytest.fixture
def log(monkeypatch):
    told = []
    monkeypatch.setattr("harness.run.runs.Child", lambda _, folder: Process(folder, told))
    return told


def experiment(**more):
    return make_experiment(**{"mechanism": "none,megaphone-batched", "keys": "1000", **more})


@pytest.fixture
def runs(tmp_path):
    made = experiment().runs()
    for run in made:
        (tmp_path / run.folder).mkdir()
        write_json(tmp_path / run.folder / "run.json", run.to_json())
    return made


def of(*steps):
    return [(what, f"{number:02d}-{name}-r0") for what, number, name in steps]


def test_the_next_run_starts_while_the_one_before_is_checked(log, runs, tmp_path):
    run_all(runs, tmp_path, View())
    first, second = (0, "none"), (1, "megaphone-batched")
    assert log == of(
        ("starts", *first),
        ("goes", *first),
        ("starts", *second),
        ("ends", *first),
        ("goes", *second),
        ("ends", *second),
    )


def test_what_was_started_and_is_not_taken_ends(log, runs, tmp_path):
    with Relay() as relay:
        relay.prepare(tmp_path / runs[0].folder)
        relay.prepare(tmp_path / runs[1].folder)  # one waits already
        assert relay.take(tmp_path / runs[1].folder).folder.name == runs[1].folder
        relay.prepare(None)
        relay.prepare(tmp_path / runs[0].folder)
    assert log == of(
        ("starts", 0, "none"), ("ends", 0, "none"), ("starts", 1, "megaphone-batched"), ("starts", 0, "none"),
        ("ends", 0, "none"),
    )  # fmt: skip


def test_the_first_run_of_the_next_experiment_starts_while_the_last_of_this_one_is_checked(log, tmp_path, monkeypatch):
    monkeypatch.setattr("harness.suites.bench._report", lambda _: {"runs": [{"verdict": "valid"}]})
    monkeypatch.setattr("harness.suites.bench.ensure_jars", lambda: None)
    suite = Suite("suite", (experiment(), experiment(keys="2000"), experiment(keys="3000", mechanism="none")))
    taken = []
    folder, code = measure_in_turn(suite, suite.experiments, tmp_path, lambda _, n, path: taken.append((n, path)))
    assert code == 0
    assert [number for number, _ in taken] == [0, 1, 2]
    assert [place for _, place in taken] == sorted(place.parent for place in folder.glob("*/experiment.json"))
    steps = [what for what, _ in log]
    last = ["goes", "starts", "ends", "goes"]  # of an experiment: the next one's first makes its state meanwhile
    assert steps == ["starts", *["goes", "starts", "ends"], *last, *["goes", "starts", "ends"], *last, "goes", "ends"]
