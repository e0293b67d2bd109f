"""The autoscaling suite: its loads, its experiments, its table and its figures."""

import json

import pytest

from harness.files import write_json
from harness.suites.autoscale.command import COLUMNS, findings, texts
from harness.suites.autoscale.rows import predicted
from harness.suites.autoscale.suite import load_shapes, suite_from
from harness.suites.scale.network import read_costs
from impls.errors import UsageError
from plots.engines import write_autoscale_figures


def row(load="spike", policy="ds2", mechanism="meces", verdict="valid", **score):
    usual = {"above_s": 1.0, "worker_s": 100.0, "rescales": 2, "oscillations": 0, "right_s": None}
    return {
        "load": load, "policy": policy, "mechanism": mechanism, "verdict": verdict, "workers": [[0.0, 1], [9.0, 4]],
        "score": {**usual, "rescales_to_right": None, **score}, "predicted": None,
    }  # fmt: skip


@pytest.mark.capability
def test_every_load_under_every_policy_is_an_experiment_and_so_is_a_fixed_number():
    suite = suite_from({"load": "step,steady", "policy": "ds2;dhalion:calm_s=5", "rounds": 2})
    assert [cell.experiment.name for cell in suite.cells()] == [
        "autoscale-step-ds2", "autoscale-step-dhalion", "autoscale-step-right", "autoscale-step-most",
        "autoscale-steady-ds2", "autoscale-steady-dhalion", "autoscale-steady-right", "autoscale-steady-most",
    ]  # fmt: skip
    first, second, right, most = suite.cells()[:4]
    assert first.experiment.autoscale.policy == "ds2:utilisation=0.6,catch_up_s=10"
    assert second.experiment.autoscale.policy == "dhalion:calm_s=5"
    assert (first.experiment.workers, first.experiment.most_workers, first.experiment.rounds) == (1, 8, 2)
    assert (right.experiment.workers, most.experiment.workers, right.experiment.autoscale) == (4, 8, None)
    assert suite.cells()[4].experiment.workers == 3, "a steady load begins with the right number"


def test_texts_and_values_give_the_same():
    texts = {"load": "step", "policy": "ds2", "mechanism": "meces", "max": "4", "cost_us": "2e3", "duration": "30"}
    assert suite_from(texts) == suite_from({**texts, "max": 4, "cost_us": 2000.0, "duration": 30.0})
    quick = suite_from({"quick": True, "max": "4"})
    assert (quick.load, quick.duration, quick.most) == (("step", "spike"), 30.0, 4)


def test_the_loads_need_what_they_say():
    suite = suite_from({"load": "step,surge,sine,spike,drift,steady"})
    assert [max(need for _, need in suite.needs(load)) for load in suite.loads()] == [
        pytest.approx(need, abs=0.2) for need in (3.5, 6.5, 4.5, 3.5, 2.5, 2.5)
    ]
    assert load_shapes(60)["step"].step_s == 20


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"load": "flood"}, "The load 'flood' is unknown"),
        ({"policy": "magic"}, "policy 'magic' is unknown"),
        ({"policy": "ds2:magic=1"}, "no option 'magic'"),
        ({"mechanism": "none"}, "cannot rescale"),
        ({"mechanism": "native-repartition"}, "cannot rescale"),
        ({"duration": 5.0}, "at least 12"),
        ({"max": 1}, "from 2 to 64"),
    ],
)
def test_bad_options_are_refused_in_a_sentence(options, told):
    with pytest.raises(UsageError, match=told):
        suite_from(options)


def test_a_row_shows_its_score_and_dashes_where_there_is_none():
    shown = dict(zip(COLUMNS, texts(row(above_s=3.25, right_s=4.5, rescales_to_right=2)), strict=True))
    assert (shown["above s"], shown["worker-s"], shown["right after s"], shown["in rescales"]) == (
        "3.2",
        "100",
        "4.5",
        "2",
    )
    assert shown["predicted above s"] == "-"
    assert "-" in texts({**row(), "score": None})


def test_findings_are_of_valid_runs_and_compare_medians_with_the_restart():
    rows = [
        row("step", rescales_to_right=2), row("step", rescales_to_right=4), row("step", verdict="invalid"),
        row("steady", oscillations=1), row(above_s=1.0, worker_s=90.0), row(above_s=3.0, worker_s=110.0),
        row(mechanism="runtime-restart", above_s=10.0, worker_s=100.0),
    ]  # fmt: skip
    assert findings(rows) == [
        "step, ds2, meces: right within 3 rescales in 1 of 2 runs.",
        "steady, ds2, meces: 1 oscillations and 2 rescales in 1 runs.",
        (
            "spike, ds2: meces was above the objective for 2.0 s, runtime-restart for 10.0 s (0.20 times), at 1.00 "
            "times the worker-seconds."
        ),
    ]


def test_figures_come_from_the_result_file_alone(tmp_path):
    suite = suite_from({"load": "spike"})
    here = {"commit": "0123456789abcdef", "dirty": False, "cores": 2}
    needs = {load.name: suite.needs(load) for load in suite.loads()}
    result = {"environment": here, "suite": suite.to_json(), "loads": needs, "rows": [row(), row(mechanism="none")]}
    write_json(tmp_path / "autoscale.json", result)
    drawn = write_autoscale_figures(json.loads((tmp_path / "autoscale.json").read_text()), tmp_path / "figures")
    assert [path.name for path in drawn] == ["autoscale-trade.svg", "autoscale-workers.svg"]
    assert all(path.with_suffix(".png").stat().st_size for path in drawn)
    assert "commit 0123456789ab" in drawn[0].read_text()
    assert write_autoscale_figures({**result, "rows": [row(verdict="invalid")]}, tmp_path / "none") == []


def test_a_prediction_of_more_workers_is_of_as_much_more_load():
    suite = suite_from({"load": "step", "policy": "ds2", "mode": "micro-batch", "duration": 30.0})
    cell = suite.cells()[0]
    small, large = (predicted(suite, cell, "meces", read_costs(), scale) for scale in (1, 25))
    for outcome, most in ((small, 8), (large, 200)):
        assert outcome.score.rescales >= 1
        assert outcome.score.rescales_to_right <= 3
        assert max(step.workers for step in outcome.steps) <= most
    assert 75 <= large.steps[-1].workers <= 140
