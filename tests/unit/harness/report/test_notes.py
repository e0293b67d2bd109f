"""Each way of having no steady latency has its reason, and a saturated run is marked in its row."""

import pytest
from rich.console import Console
from synthetic import new_experiment

from harness.report.comparison import comparison, comparison_table
from harness.report.notes import grows, left_out, notes, why_unsteady
from plots.data import load
from plots.metrics import remarks


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return new_experiment(tmp_path_factory)


@pytest.fixture
def experiment(folder):
    return load(folder)


def entry(p50, *, warmup_s=None, reason="", begins=()):
    rows = [{"at_s": number * 0.25, "p50": value} for number, value in enumerate(p50)]
    return {
        "latency_ms": {"steady": {"p50": None}},
        "timeline": rows,
        "warmup_s": warmup_s,
        "warmup": {"reason": reason},
        "migrations": [{"begin_s": begin} for begin in begins],
    }


CALM, RISING = [200.0] * 80, [100.0 + 120.0 * number for number in range(80)]


@pytest.mark.parametrize(
    ("run", "why"),
    [
        (entry([]), "no record's latency was measured"),
        (entry(RISING), "its lag grew through the whole run, to 9.6 s"),
        (
            entry(RISING, begins=[15.0, 10.0]),
            "its lag grew through the whole time before the first migration, to 4.8 s",
        ),
        (entry(CALM, reason="only 5 epochs before it"), "only 5 epochs before it"),
        (entry(CALM), "it had not warmed up"),
        (entry(CALM, warmup_s=19.9), "no record was due behind its warm-up, which lasted until 19.9 s"),
        (
            entry(CALM, warmup_s=12.0, begins=[10.0]),
            "no time lies between the end of its warm-up, 12.0 s, and its first migration, 10.0 s",
        ),
        (
            entry(CALM, warmup_s=9.9, begins=[10.0]),
            "every record from its warm-up's end on was still on its way when a migration began at 10.0 s",
        ),
    ],
)
def test_a_run_without_steady_state_says_why(run, why):
    assert why_unsteady(run) == why


def test_a_run_with_steady_state_has_no_reason():
    assert why_unsteady({**entry(RISING), "latency_ms": {"steady": {"p50": 9.0}}}) == ""


@pytest.mark.parametrize("latencies", [[], [5_000.0] * 3, [1.0, 2.0, 4.0, 8.0], [9_000.0, 4_000.0, 6_000.0, 9_000.0]])
def test_few_short_and_falling_latencies_do_not_grow(latencies):
    assert not grows(latencies)


def test_the_reason_stands_behind_the_table_and_on_the_page(folder, experiment):
    assert not [said for said in notes(experiment) if "steady latency" in said]
    run = experiment.comparable()[0]
    run.entry["machine"] = "busy"  # its row in the table of runs has a hyphen all the same
    run.entry["latency_ms"]["steady"] = {"p50": None}
    run.entry["warmup_s"], run.entry["warmup"] = None, {"reason": "only 5 epochs before the first command"}
    (said,) = [said for said in notes(experiment) if "steady latency" in said]
    assert said == f"There is no steady latency of {run.label} (only 5 epochs before the first command)."


def test_a_run_that_is_left_out_says_why(experiment):
    assert left_out(experiment) == ""
    run = experiment.ordered()[0]
    run.entry["load"] = "late"
    assert left_out(experiment) == f"The comparison leaves out {run.label} (load late)."


def shown(experiment):
    console = Console(width=200, record=True)
    with console.capture() as out:
        console.print(comparison_table(experiment))
    return {line.split("  ")[0]: line for line in out.get().splitlines()}


def test_a_saturated_run_is_marked_in_its_row(experiment):
    assert "saturated" not in " ".join(shown(experiment).values())
    first, *others = [run for run in experiment.ordered() if run.mechanism == "megaphone-batched"]
    first.entry["cpu_idle"] = 0.04
    assert "2 of 2, 1 saturated" in shown(experiment)["megaphone-batched"]
    for run in others:
        run.entry["cpu_idle"] = 0.09
    assert "2 of 2, saturated" in shown(experiment)["megaphone-batched"]
    assert [line.mechanism for line in comparison(experiment) if line.saturated] == ["megaphone-batched"]


@pytest.mark.parametrize(("idle", "words"), [(0.09, ["saturated"]), (0.1, []), (None, [])])
def test_a_run_is_saturated_below_a_tenth_of_idle_time(idle, words):
    assert remarks({"cpu_idle": idle, "load": "met", "machine": "quiet"}) == words
