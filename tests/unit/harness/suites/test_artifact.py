"""What a reviewer gets: steps of a reproduction, an image's commit, epoch logs as Parquet."""

import json
import subprocess

import pyarrow.parquet as pq
import pytest
from synthetic import write_run

from harness.files import ROOT
from harness.results.epochs import export
from harness.results.machine import describe_machine
from harness.suites.artifact import image, reproduce
from impls.errors import UsageError


@pytest.mark.capability
def test_epochs_are_exported_row_by_row(tmp_path):
    write_run(tmp_path / "runs" / "00", mechanism="meces", seconds=5, rate=100)
    (path,) = export(tmp_path)
    table = pq.read_table(path)
    lines = (path.parent / "epochs.jsonl").read_text().splitlines()
    assert len(table) == len(lines) > 3
    assert set(table.column("mechanism").to_pylist()) == {"meces"}
    assert {"epoch", "records", "ms_total", "ms_job"} <= set(table.column_names)
    homes = json.loads(lines[0])["homes"]
    assert [[home["worker"], home["host"]] for home in table.column("homes")[0].as_py()] == homes
    with pytest.raises(UsageError, match="no result folder"):
        export(tmp_path / "elsewhere")


def test_an_image_knows_its_commit(monkeypatch):
    monkeypatch.setenv("RESCALE_COMMIT", "a" * 40)
    assert (describe_machine(1)["commit"], describe_machine(1)["dirty"]) == ("a" * 40, False)
    monkeypatch.setenv("RESCALE_COMMIT", "unknown")
    assert describe_machine(1)["dirty"] is True


def test_without_docker_there_is_one_sentence(monkeypatch):
    monkeypatch.setattr(image.shutil, "which", lambda _name: None)
    with pytest.raises(UsageError, match="docker is not installed"):
        image.docker("version")
    monkeypatch.setattr(image.shutil, "which", lambda name: name)
    refused = subprocess.CompletedProcess([], 1, "", "")
    monkeypatch.setattr(image.subprocess, "run", lambda *_, **__: refused)
    with pytest.raises(UsageError, match="No Docker engine answers"):
        image.docker("version")
    with pytest.raises(UsageError, match="no git repository"):
        image.build(base="x", network="")


_DOCKER = """#!/bin/sh
[ "$1" = run ] || exit 0
echo "results are in /app/results/20260101-quick"
echo "the log is /app/results/run.log" >&2
exit 3
"""


def test_a_container_tells_of_paths_here(tmp_path, monkeypatch, capsys):
    program = tmp_path / "bin" / "docker"
    program.parent.mkdir()
    program.write_text(_DOCKER)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    assert image.run(["bench"], results=tmp_path / "results") == 3
    told = capsys.readouterr()
    assert told.out == f"results are in {tmp_path}/results/20260101-quick\n"
    assert told.err == f"the log is {tmp_path}/results/run.log\n"


@pytest.mark.capability
def test_a_reproduction_stops_where_it_is_cut_off_and_tells_of_every_step(tmp_path, monkeypatch, capsys):
    ran = []

    def step(name, code):
        return reproduce.ReproduceStep(name, 1, lambda: ran.append(name) or code)

    monkeypatch.setattr(reproduce, "steps", lambda *_, **__: [step("a", 0), step("b", 1), step("c", 0)])
    assert reproduce.reproduce(tmp_path) == 1
    assert ran == ["a", "b", "c"]
    assert "done: a\nexit code 1: b\ndone: c\n" in capsys.readouterr().out
    monkeypatch.setattr(reproduce, "steps", lambda *_, **__: [step("d", 130), step("e", 0)])
    assert reproduce.reproduce(tmp_path) == 130
    assert ran[3:] == ["d"]


def test_a_reproduction_has_all_parts_and_a_quick_form(tmp_path):
    whole, quick = (reproduce.steps(tmp_path, quick=quick) for quick in (False, True))
    assert len(whole) > len(quick) >= 5
    assert sum(step.minutes for step in quick) < 30
    assert sum(step.minutes for step in whole) < 9 * 60


def test_figures_need_results(tmp_path, capsys):
    assert reproduce.figures(tmp_path) == 2
    assert "no result" in capsys.readouterr().err


def test_the_workflow_does_only_what_inv_does():
    lines = (ROOT / ".github/workflows/ci.yml").read_text().splitlines()
    runs = [line.split("run:", 1)[1].strip() for line in lines if line.strip().startswith("- run:")]
    assert len(runs) >= 5
    assert all(run.startswith("./inv ") for run in runs)
