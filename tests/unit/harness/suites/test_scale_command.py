"""Costs are taken from a result, predictions are checked against one, and bad input gets one sentence."""

import json
from dataclasses import fields

import pytest
from synthetic import new_experiment

from harness.options import parse_bytes
from harness.suites.scale.calibrate import calibrate, read_runs
from harness.suites.scale.command import prediction_table, run_simulate_scale
from harness.suites.scale.network import DEFAULT_COSTS, Costs, read_costs, write_costs
from harness.suites.scale.scenario import FIGURES, at_scale, compare, errors_of, make_scenario, predict_all
from impls import catalog
from impls.errors import UsageError

SMALL = {"workers": 8, "bins": 64, "state": "1GB", "rate": "10k"}


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    return new_experiment(tmp_path_factory, seconds=18, rounds=1, rate=500)


@pytest.mark.lengthy
def test_costs_of_a_result_are_those_it_was_made_with(result):
    costs = calibrate(read_runs([result], "take costs from"), read_costs())
    assert costs.epoch_ms + 4 * costs.worker_ms == pytest.approx(203, abs=8)
    assert costs.slots == 2
    assert costs.pull_bytes_s > 0
    assert costs.source[""].startswith("measured in 20260101-000000-synthetic")
    assert "external_record_us" in costs.source  # which the result does not show


def test_calibration_says_which_costs_it_did_not_find(result, tmp_path, capsys):
    path = tmp_path / "costs.json"
    assert run_simulate_scale({"calibrate": str(result), "costs": str(path)}) == 0
    assert "external_record_us" in capsys.readouterr().out
    assert read_costs(path) == calibrate(read_runs([result], "take costs from"), read_costs())


def test_check_compares_every_run(result, tmp_path, capsys):
    path = tmp_path / "costs.json"
    write_costs(calibrate(read_runs([result], "take costs from"), read_costs()), path)
    rows = compare(result, read_costs(path))
    runs = {"none", "runtime-restart", "megaphone-all-at-once", "megaphone-fluid", "megaphone-batched"}
    assert {row.mechanism for row in rows if row.figure == "steady_p50_ms"} == runs
    assert {row.mechanism for row in rows if row.figure == "peak_ms"} == runs - {"none"}
    steady = [row for row in rows if row.figure == "steady_p50_ms"]
    assert all(abs(row.error) < 0.1 for row in steady)
    assert all(row.error == row.predicted / row.measured - 1 for row in rows)
    assert run_simulate_scale({"check": str(result), "costs": str(path)}) == 0
    printed = capsys.readouterr().out
    assert all(figure in printed for figure in FIGURES)
    assert "very result" in printed


def test_a_late_run_counts_for_no_error(result):
    rows = compare(result, read_costs())
    assert errors_of(rows)["peak_ms"] is not None
    assert errors_of([])["peak_ms"] is None


def test_the_committed_costs_are_whole_and_say_where_they_come_from():
    data = json.loads(DEFAULT_COSTS.read_text())
    assert set(data["values"]) == {f.name for f in fields(Costs)} - {"source"}
    assert data["source"][""].startswith("measured in ")
    assert set(data["source"]) <= {"", *data["values"]}


def test_the_table_is_sorted_by_peak(capsys):
    assert run_simulate_scale({**SMALL, "jobs": 1}) == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in catalog.names())
    scenario = make_scenario(SMALL)
    found = [p for p, _ in predict_all(scenario.setting(at_scale(read_costs())), scenario.mechanisms, 1)]
    table = prediction_table(found, "")
    peaks = [float(text.replace(",", "")) for text in table.columns[2].cells]
    assert peaks == sorted(peaks)
    assert "Left out" in printed


@pytest.mark.capability
def test_the_number_of_processes_changes_nothing():
    scenario = make_scenario({**SMALL, "mechanism": "none,megaphone-batched"})
    setting = scenario.setting(at_scale(read_costs()))
    one, two = ([p.peak_ms for p, _ in predict_all(setting, scenario.mechanisms, jobs)] for jobs in (1, 2))
    assert one == two


def test_bandwidth_limits_what_was_measured_on_one_host():
    assert at_scale(read_costs(), 1e3).pull_bytes_s == 1e3
    assert at_scale(read_costs(), 1e30).pull_bytes_s == read_costs().pull_bytes_s


@pytest.mark.parametrize(("text", "value"), [("1TB", 10**12), ("500 G", 5 * 10**11), ("1e3", 1000), ("7", 7)])
def test_sizes_are_powers_of_ten(text, value):
    assert parse_bytes(text, "The state") == value


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"bins": 1000}, "power of two"),
        ({"workers": 100, "bins": 64}, "too many"),
        ({"workers": 1}, "at least 2 workers"),
        ({"state": "big"}, "such as 1TB"),
        ({"state": 3, "bins": 64, "workers": 4}, "byte per bin"),
        ({"rate": "-1"}, "The rate"),
        ({"distribution": "normal"}, "uniform and zipf"),
        ({"exponent": "steep"}, "Zipf"),
        ({"mechanism": "teleport"}, "unknown"),
        ({"option": "bins_per_pair=0"}, "at least 1"),
        ({"jobs": "two"}, "processes"),
        ({"costs": "/nowhere/costs.json"}, "cannot be read"),
        ({"check": "/nowhere"}, "cannot be read"),
        ({"calibrate": "/nowhere"}, "cannot be read"),
    ],
)
def test_bad_input_gets_one_sentence(options, says, capsys):
    assert run_simulate_scale(options) == 2
    error = capsys.readouterr().err
    assert says in error
    assert len(error.strip().splitlines()) == 1


def test_costs_must_be_numbers(tmp_path):
    path = tmp_path / "costs.json"
    data = json.loads(DEFAULT_COSTS.read_text())
    path.write_text(json.dumps({**data, "values": {**data["values"], "record_us": "fast"}}))
    with pytest.raises(UsageError, match="record_us"):
        read_costs(path)
