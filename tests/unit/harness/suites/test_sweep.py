"""A sweep runs every mechanism in every cell, skips what is done, and draws its figures from the result alone."""

import json

import pytest
from synthetic import write_sweep

from harness.files import read_json
from harness.report.comparison import comparison, conclusions
from harness.report.report import redraw, write_report
from harness.results.summary import CELL_FILE, validate
from harness.run.progress import Lines
from harness.run.runs import run_all
from harness.suites.bench import prepare_runs
from harness.suites.sweep import PRESETS, grid_from, make_grid, sweep
from impls.errors import UsageError
from plots.data import load
from plots.figure import all_figures, svg_of
from plots.sweep import curves, panels_of, peak

MECHANISMS = "none,megaphone-all-at-once,megaphone-batched"


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    folder = tmp_path_factory.mktemp("results") / "20260101-000000-sweep-domain"
    write_sweep(folder, make_grid({"mechanism": MECHANISMS, "keys": "400k,1600k", "rounds": 2}))
    return load(folder)


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("name", list(PRESETS))
def test_every_preset_is_a_grid_that_can_be_run(name, quick):
    grid = make_grid({}, preset=name, quick=quick)
    assert grid.x == PRESETS[name].x
    assert grid.x in grid.varied
    runs = grid.runs()
    assert len(runs) == len(grid.cells) * len(grid.base.mechanisms)
    assert len({run.folder for run, _ in runs}) == len(runs)
    assert not quick or grid.minutes() < 5


def test_bytes_per_bin_are_constant_in_the_preset_of_that_name():
    grid = make_grid({}, preset="constant-bytes-per-bin")
    ratios = [cell["keys"] / cell["bins"] for cell in grid.cells]
    assert len(grid.cells) == 4
    assert max(ratios) / min(ratios) <= 1.01


def test_a_free_grid_is_the_product_of_its_axes():
    grid = make_grid({"mechanism": "none,meces", "keys": "1M,2M", "skew": "0,1.2", "policy": "contiguous"})
    assert [(cell["keys"], cell["skew"]) for cell in grid.cells] == [
        (1_000_000, 0), (1_000_000, 1.2), (2_000_000, 0), (2_000_000, 1.2)
    ]  # fmt: skip
    assert (grid.x, grid.varied) == ("keys", ["keys", "skew"])
    uniform, zipf = (grid.experiment(cell, "meces") for cell in grid.cells[:2])
    assert (uniform.distribution, zipf.distribution, zipf.exponent) == ("uniform", "zipf", 1.2)
    assert (zipf.mechanisms, zipf.keys, zipf.policy) == (("meces",), 1_000_000, "contiguous")


def test_policies_with_options_are_told_apart_by_semicolons():
    policies = "minimal_move;consistent_hashing:virtual_nodes=16"
    grid = make_grid({"policy": policies, "workers": "2:4"})
    assert [cell["policy"] for cell in grid.cells] == policies.split(";")
    assert all(":" not in run.folder for run, _ in grid.runs())


def test_rounds_are_interleaved_in_an_order_drawn_from_the_seed():
    given = {"mechanism": MECHANISMS, "keys": "1M,2M,4M", "rounds": 3}
    runs = [run for run, _ in make_grid(given).runs()]
    assert [run.round for run in runs] == sorted(run.round for run in runs)
    orders = [[(r.mechanism, r.experiment.keys) for r in runs if r.round == number] for number in range(3)]
    assert sorted(orders[0]) == sorted(orders[1])
    assert orders[0] != orders[1]
    assert runs == [run for run, _ in make_grid(given).runs()]
    assert runs != [run for run, _ in make_grid({**given, "seed": 2}).runs()]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"preset": "nonsense"}, "The preset 'nonsense' is unknown: use one of bins, domain"),
        ({}, "needs two values at least"),
        ({"keys": "1M,x"}, "--keys must be a number"),
        ({"keys": "1M", "skew": "a,b"}, "--skew takes exponents"),
        ({"keys": ",", "bins": "16,64"}, "--keys needs a value"),
        ({"bins": "16,63"}, "63"),
        ({"keys": "100,1M"}, "100 keys are too few"),
        ({"mechanism": "magic", "keys": "1M,2M"}, "'magic' is unknown"),
        ({"preset": "constant-bytes-per-bin", "bins": "16,64"}, "vary together"),
        ({"keys": "1M,2M", "duration": "soon"}, "--duration takes a number"),
    ],
)
def test_bad_input_is_one_sentence(options, words):
    with pytest.raises(UsageError, match=words) as caught:
        grid_from(options)
    assert "\n" not in str(caught.value)


@pytest.mark.capability
def test_what_is_done_is_kept_and_what_was_cut_off_is_made_anew(tmp_path):
    grid = make_grid({"mechanism": "none", "keys": "1M,2M,4M"})
    prepare_runs(grid, grid.runs(), tmp_path, grid.base.seed)
    first, second, third = (tmp_path / "runs" / run.folder for run, _ in grid.runs())
    (first / "done").touch()
    (first / "kept").touch()
    (second / "half.jsonl").write_text("{")
    (third / "run.json").unlink()
    described = (tmp_path / "experiment.json").read_bytes()
    prepare_runs(grid, grid.runs(), tmp_path, grid.base.seed)
    assert (first / "kept").exists()
    assert not (second / "half.jsonl").exists()
    assert read_json(third / "run.json")["keys"] == read_json(third / CELL_FILE)["keys"]
    assert (tmp_path / "experiment.json").read_bytes() == described


def test_a_finished_run_is_not_started_again(tmp_path, capsys):
    grid = make_grid({"mechanism": "none", "keys": "1M,2M"})
    prepare_runs(grid, grid.runs(), tmp_path, grid.base.seed)
    runs = [run for run, _ in grid.runs()]
    for run in runs:
        (tmp_path / "runs" / run.folder / "done").touch()
    run_all(runs, tmp_path / "runs", Lines(len(runs)))
    told = capsys.readouterr().err.splitlines()
    assert told == [f"{number}/2 {run.folder}: done before" for number, run in enumerate(runs, 1)]


def test_cut_off_keeps_what_is_there_and_is_gone_on_with(tmp_path, monkeypatch):
    grid = make_grid({"mechanism": "none", "keys": "1M,2M"})

    def carry_out_one(runs, folder, _view, _relay=None):
        write_one = folder / next(r.folder for r in runs if not (folder / r.folder / "done").exists())
        (write_one / "error.json").write_text('{"error": "planted"}')
        (write_one / "done").touch()
        if not all((folder / run.folder / "done").exists() for run in runs):
            raise KeyboardInterrupt

    monkeypatch.setattr("harness.run.runs.run_all", carry_out_one)
    folder, code = sweep(grid, tmp_path)
    assert (code, (folder / "done").exists(), len(read_json(folder / "result.json")["runs"])) == (130, False, 1)
    assert (folder / "report.html").exists()
    again, code = sweep(grid, tmp_path)
    assert (again, code, (folder / "done").exists()) == (folder, 1, True)
    assert len(read_json(folder / "result.json")["runs"]) == 2


@pytest.mark.lengthy
def test_the_result_obeys_the_schema_and_names_each_run_s_cell(swept):
    result = validate(swept.folder)
    assert {run["cell"]["keys"] for run in result["runs"]} == {400_000, 1_600_000}
    assert swept.is_sweep
    assert swept.cell_label(swept.cells()[0]) == "keys 400,000"
    assert "keys 400,000, 1,600,000" in swept.identity()
    assert "keys 4,000,000" not in swept.identity(), "the default that no run has"


def test_curves_are_medians_over_rounds_in_order_of_the_axis(swept):
    (panel,) = panels_of(swept)
    found = {curve.mechanism: curve for curve in curves(swept, panel, peak)}
    assert list(found) == MECHANISMS.split(",")
    for curve in found.values():
        assert curve.x == [400_000, 1_600_000]
        assert all(low <= middle <= high for low, middle, high in zip(curve.low, curve.middle, curve.high, strict=True))
    assert found["megaphone-all-at-once"].middle[1] > found["megaphone-all-at-once"].middle[0] + 800
    assert found["none"].middle[1] < found["megaphone-all-at-once"].middle[0]


def test_axes_beside_x_make_panels_unless_they_follow_it():
    class Swept:
        def __init__(self, grid):
            self.grid = json.loads(json.dumps(grid.to_json()["grid"]))
            self.cells = lambda: self.grid["cells"]

    assert panels_of(Swept(make_grid({}, preset="constant-bytes-per-bin"))) == [{}]
    assert panels_of(Swept(make_grid({"keys": "1M,2M", "skew": "0,1"}))) == [{"skew": 0.0}, {"skew": 1.0}]
    assert panels_of(Swept(make_grid({"keys": "1M,2M", "bins": "64,256"}))) == [{"bins": 64}, {"bins": 256}]


@pytest.mark.parametrize("figure", all_figures(sweep=True), ids=lambda figure: figure.name)
def test_figures_of_a_sweep_show_it_and_no_others_do(figure, swept):
    assert svg_of(figure, swept) is not None
    assert {f.name for f in all_figures(sweep=True)} & {f.name for f in all_figures()} == {"verdicts"}


def test_comparison_is_cell_by_cell_the_lowest_peak_first(swept):
    lines = comparison(swept)
    assert [line.cell for line in lines] == ["keys 400,000"] * 3 + ["keys 1,600,000"] * 3
    for three in (lines[:3], lines[3:]):
        assert [line.peak for line in three] == sorted(line.peak for line in three)
        assert three[-1].mechanism == "megaphone-all-at-once"


@pytest.mark.lengthy
def test_the_report_of_a_sweep_is_drawn_again_and_says_where_the_peaks_are(swept, capsys):
    assert redraw(str(swept.folder)) == 0
    page = write_report(swept.folder, drawn=True).read_text()
    assert capsys.readouterr().out.strip().endswith("report.html")
    assert 'id="sweep_peak"' in page
    assert 'id="latency_timeline"' not in page
    text = {line.mechanism: line.text for line in conclusions(swept)}
    assert text["megaphone-all-at-once"].endswith("(keys 1,600,000) at worst.")
