"""Samples of a busy machine, planted into one run: every comparison leaves it out and says so."""

import io
import shutil

import pytest
from rich.console import Console
from synthetic import write_experiment

from harness.experiment.description import Run
from harness.experiment.make import make_experiment
from harness.files import JsonLines, read_json, read_lines, write_json
from harness.live.view import LiveView
from harness.report.across import find_experiments, write_comparison
from harness.report.comparison import comparison, conclusions, print_comparison
from harness.report.notes import notes
from harness.report.report import write_report
from harness.results.entry import ENTRY_FILE, summarise_run
from harness.results.summary import validate, write_result
from plots.data import load

VICTIM = "megaphone-batched"


def plant(run, steal):
    """Gives a run's samples counters of which the hypervisor takes `steal` of every second, and the run one second."""
    lines = read_lines(run / "memory.jsonl")
    first, last = lines[0]["at_us"], lines[-1]["at_us"]
    with JsonLines(run / "events.jsonl") as file:
        file.write({"at_us": last, "kind": "load_end"})
    (run / "memory.jsonl").unlink()
    with JsonLines(run / "memory.jsonl") as file:
        for line in lines:
            spent = line["at_us"] - first
            taken = round(spent * steal)
            sums = {"own": spent, "used": spent, "steal": taken, "idle": spent - taken, "throttled": 0}
            file.write({**line, "cpu": sums})
    summarise_run(run)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("results") / "20260101-000000-busy"
    path.mkdir()
    write_experiment(path, seconds=12, rate=200, rounds=1)
    for run in (path / "runs").iterdir():
        plant(run, 0.5 if VICTIM in run.name else 0.05)
    write_result(path)
    return path


def test_the_run_is_marked_and_its_verdict_kept(folder):
    runs = {run["mechanism"]: run for run in validate(folder)["runs"]}
    assert runs.pop(VICTIM)["machine"] == "busy"
    assert {run["machine"] for run in runs.values()} == {"quiet"}
    experiment = load(folder)
    (victim,) = experiment.withheld()
    assert (victim.mechanism, victim.verdict) == (VICTIM, "valid")
    assert victim.why_withheld() == "machine busy, 33% of its CPU time taken away"


def test_no_comparison_has_it(folder):
    experiment = load(folder)
    assert VICTIM not in {run.mechanism for run in experiment.comparable()}
    assert VICTIM not in {run.mechanism for run in experiment.typical()}
    (line,) = [line for line in comparison(experiment) if line.mechanism == VICTIM]
    assert (line.compared, set(line.values.values())) == (0, {None})
    (said,) = [one for one in conclusions(experiment) if one.mechanism == VICTIM]
    assert "machine busy, 33%" in said.text


def test_the_pages_name_it_with_its_share(folder, tmp_path):
    page = write_report(folder).read_text()
    assert "1 of 5 runs is left out of the comparison" in page
    assert "machine busy, 33% of its CPU time taken away" in page
    across = write_comparison(find_experiments([folder]), tmp_path / "across.html").read_text()
    assert "machine busy, 33% of its CPU time taken away" in across
    assert "machine busy" in across


def test_the_terminal_names_it_and_says_what_to_do(folder, capsys):
    print_comparison(folder)
    said = capsys.readouterr().out
    assert "1 of 5 runs is left out of the comparison: other work took more than 10 % of its CPU time." in said
    assert "--resume" in said
    assert "--force" in said
    experiment, shown = make_experiment(mechanism=VICTIM), io.StringIO()
    run = Run(experiment, VICTIM, 0, 0)
    with LiveView(experiment, folder, Console(file=shown, width=200)) as view:
        view.begin(run)
        view.end(run, next(path for path in (folder / "runs").iterdir() if VICTIM in path.name))
    assert "valid (machine busy, 33% of its CPU time taken away)" in shown.getvalue()


def test_a_saturated_machine_is_named_and_its_run_compared(folder):
    experiment = load(folder)
    assert not [said for said in notes(experiment) if "saturated" in said]
    full = next(run for run in experiment.comparable())
    full.entry["cpu_idle"] = 0.04
    (said,) = [said for said in notes(experiment) if "saturated" in said]
    assert said.startswith(f"The machine was saturated in {full.label}: less than 10% of its CPU time was idle")
    assert full in experiment.comparable()


def test_a_result_from_before_there_was_a_mark_stays_readable(folder):
    old = read_json(folder / "result.json")
    for run in old["runs"]:
        del run["machine"], run["cpu_taken"], run["cpu_idle"]
    place = folder.parent / "20250101-000000-old"
    place.mkdir()
    write_json(place / "result.json", old)
    validate(place)
    assert len(load(place).comparable()) == 5
    assert (next((folder / "runs").iterdir()) / ENTRY_FILE).exists()


def test_a_saturated_machine_is_marked_in_the_tables_of_the_page(folder, tmp_path):
    place = tmp_path / folder.name
    shutil.copytree(folder, place)
    stored = read_json(place / "result.json")
    next(run for run in stored["runs"] if run["mechanism"] == "none")["cpu_idle"] = 0.04
    write_json(place / "result.json", stored)
    page = write_report(place).read_text()
    assert ">quiet, saturated</td>" in page
    assert ">1 of 1, saturated</td>" in page
