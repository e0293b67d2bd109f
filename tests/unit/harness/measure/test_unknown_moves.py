"""A migration that moved nothing, or of which nothing is known, says so: never a duration of 0.0 or a count of 0."""

import io

import pytest
from rich.console import Console
from synthetic import write_experiment, write_run

from harness.experiment.description import Run
from harness.experiment.make import make_experiment
from harness.files import JsonLines, read_json, read_lines, write_json
from harness.live.view import LiveView
from harness.measure.migrations import migrations_of, moved, outcome
from harness.report.comparison import comparison_table
from harness.report.report import write_report
from harness.results.entry import ENTRY_FILE, summarise_run
from harness.results.summary import validate, write_result
from harness.suites.perf.part import migrations
from harness.suites.regress.trees import measures_of
from impls.errors import StateError
from plots.data import load
from plots.metrics import by_name

COMMAND = {"kind": "command", "id": "m", "label": "back", "at_us": 1_000}
BEGIN = {"kind": "migration_begin", "id": "m", "label": "back", "at_us": 1_500, "epoch": 3, "bins": 4}
END = {"kind": "migration_end", "id": "m", "at_us": 3_000, "epoch": 4, "superseded": False}


def epochs(*bins):
    return [
        {
            "epoch": 3 + place, "begin_us": 1_500 + 1_000 * place, "end_us": 2_500 + 1_000 * place,
            "moved_bins": number, "moved_bytes": number * 10, "longest_pull_ms": 0.0,
        }
        for place, number in enumerate(bins)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("events", "lines", "told", "bins"),
    [
        ([COMMAND, BEGIN, END], epochs(4, 0), None, 4),
        ([COMMAND], epochs(0, 0), "did not begin", None),
        ([COMMAND, BEGIN], epochs(0, 3), "had not ended when the run did: it had moved 3 bins", 3),
        ([COMMAND, BEGIN], [], "it had moved an unknown number of bins", None),
        ([COMMAND, BEGIN, {**END, "superseded": True}], epochs(1, 0), "next command took its place", 1),
        ([COMMAND, BEGIN, END], [], "no epoch of it is in the epoch log", None),
        ([COMMAND, {**BEGIN, "bins": 0}, END], epochs(0, 0), "fulfilled without a move", 0),
        ([COMMAND, BEGIN, END], epochs(0, 0), "without a move of its own", 0),
        ([COMMAND, {**COMMAND, "kind": "migration_begin", "epoch": 3}, END], epochs(0, 0), "was restarted", 0),
    ],
)
def test_what_became_of_a_migration_is_said(events, lines, told, bins):
    (migration,) = migrations_of(events, lines)
    what = moved(migration, events, lines)
    assert what.bins == bins
    assert (what.duration_s is None) == (not bins)
    said = outcome(migration, what, events)
    assert said is None if told is None else told in said


@pytest.fixture
def still(tmp_path):
    """A result whose one run has a first migration that moved, and a second that found its bins in place."""
    folder = tmp_path / "20260101-000000-still"
    place = folder / "runs" / "00-megaphone-batched-r0"
    folder.mkdir()
    write_experiment(folder, seconds=12, rate=200, rounds=1)
    run = next(path for path in (folder / "runs").iterdir() if "megaphone-batched" in path.name)
    for other in (folder / "runs").iterdir():
        if other != run:
            (other / ENTRY_FILE).unlink()
            (other / "load.json").unlink()
    assert run.name != place.name
    spoil(run)
    write_result(folder)
    return folder, run


def spoil(run):
    """Lets the second migration of a run have moved nothing."""
    events, lines = read_lines(run / "events.jsonl"), read_lines(run / "epochs.jsonl")
    ends = {event["id"]: event["epoch"] for event in events if event["kind"] == "migration_end"}
    begins = {event["id"]: event["epoch"] for event in events if event["kind"] == "migration_begin"}
    second = sorted(begins, key=begins.get)[1]
    inside = range(begins[second], ends[second] + 1)
    told = [
        {**event, "bins": 0} if event["kind"] == "migration_begin" and event["id"] == second else event
        for event in events
    ]
    quiet = [{**line, "moved_bins": 0, "moved_bytes": 0} if line["epoch"] in inside else line for line in lines]
    for name, rows in (("events", told), ("epochs", quiet)):
        (run / f"{name}.jsonl").unlink()
        with JsonLines(run / f"{name}.jsonl") as file:
            for row in rows:
                file.write(row)
    summarise_run(run)


@pytest.mark.lengthy
def test_the_result_and_its_report_say_it(still):
    folder, _ = still
    (entry,) = validate(folder)["runs"]
    first, second = entry["migrations"]
    assert (first["outcome"], second["duration_s"], second["bins"]) == (None, None, 0)
    assert "fulfilled without a move" in second["outcome"]
    assert by_name("migration_s").value(entry) == first["duration_s"]
    page = write_report(folder).read_text()
    assert "Every bin was where the command wanted it" in page
    with pytest.raises(StateError, match="has no duration"):
        migrations([entry])


def unknown(folder, run):
    """Lets nothing be known of what the run's migrations moved."""
    entry = read_json(run / ENTRY_FILE)
    nothing = {"bins": None, "bytes": None, "duration_s": None, "peak_ms": None, "longest_pull_ms": None}
    entry["migrations"] = [{**migration, **nothing} for migration in entry["migrations"]]
    write_json(run / ENTRY_FILE, entry)
    write_result(folder)
    return entry


def test_unknown_numbers_are_dashes_on_the_terminal(still):
    folder, run = still
    entry = unknown(folder, run)
    validate(folder)
    shown = io.StringIO()
    experiment = make_experiment(mechanism="megaphone-batched")
    with LiveView(experiment, folder, Console(file=shown, width=160)) as view:
        view.begin(Run(experiment, "megaphone-batched", 0, 0))
        view.end(Run(experiment, "megaphone-batched", 0, 0), run)
    row = shown.getvalue().splitlines()
    last = next(line.split() for line in reversed(row) if line.startswith("00-megaphone-batched-r0 "))
    assert last[-4:] == ["-", "-", "-", "-"]
    table = io.StringIO()
    Console(file=table, width=200).print(comparison_table(load(folder)))
    assert " 0.0" not in table.getvalue()
    counts = measures_of(folder)["megaphone-batched"]
    assert "moved_bins" not in counts
    assert "records" in counts
    assert by_name("moved_bins").value(entry) is None


def test_a_sum_with_an_unknown_part_is_unknown():
    entry = {"migrations": [{"bins": 4, "duration_s": 1.5}, {"bins": None, "duration_s": None}]}
    assert by_name("moved_bins").value(entry) is None
    assert by_name("migration_s").value(entry) == 1.5


def test_a_run_without_migrations_moved_none(tmp_path):
    run = tmp_path / "runs" / "00-none-r0"
    write_run(run, mechanism="none", seconds=12, rate=200)
    shown = io.StringIO()
    experiment = make_experiment(mechanism="none")
    with LiveView(experiment, tmp_path, Console(file=shown, width=160)) as view:
        view.begin(Run(experiment, "none", 0, 0))
        view.end(Run(experiment, "none", 0, 0), run)
    last = next(line.split() for line in reversed(shown.getvalue().splitlines()) if line.startswith("00-none-r0 "))
    assert last[-4:] == ["-", "-", "0", "0.0"]
