"""Figures are drawn from result files alone, carry their identity, and leave out what is withheld."""

import json
import re
import shutil
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from synthetic import new_experiment

from plots import figure as figure_module
from plots import metrics, theme, timelines
from plots.data import load
from plots.figure import all_figures, svg_of, write_all
from plots.latency import restart_and_live

# What an experiment in micro-batches has something of; test_real_time_lines.py has the figure of the other mode.
SHOWN = [figure for figure in all_figures() if figure.name != "latency_breakdown"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return new_experiment(tmp_path_factory)


@pytest.fixture
def edited(folder):
    """Lets a test change result.json, and puts the original back."""
    path = folder / "result.json"
    original = path.read_text()

    def edit(change):
        result = json.loads(original)
        change(result)
        path.write_text(json.dumps(result))
        return load(folder)

    yield edit
    path.write_text(original)


def text_of(svg):
    return " ".join("".join(node.itertext()) for node in ET.fromstring(svg).iter() if node.tag.endswith("text"))


def test_every_figure_has_a_name_of_its_own_and_one_sentence():
    figures = all_figures()
    assert len({figure.name for figure in figures}) == len(figures) >= 7
    for figure in figures:
        assert figure.caption.endswith(".")
        assert re.fullmatch(r"[a-z_]+", figure.name)


@pytest.mark.parametrize("figures", [SHOWN[:2], pytest.param(SHOWN, marks=pytest.mark.slow)], ids=["two", "all"])
def test_write_all_leaves_only_whole_files(folder, monkeypatch, figures):
    monkeypatch.setattr(figure_module, "all_figures", lambda **_: figures)
    shutil.rmtree(folder / "figures", ignore_errors=True)
    paths = write_all(folder)
    assert sorted(path.name for path in paths) == sorted(path.name for path in (folder / "figures").iterdir())
    assert {path.suffix for path in paths} == {".png", ".svg"}
    assert len(paths) == 2 * len(figures)
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths if path.suffix == ".png")


@pytest.mark.parametrize("figure", SHOWN, ids=lambda figure: figure.name)
def test_figure_says_which_runs_it_shows(figure, folder):
    experiment = load(folder)
    text = text_of(svg_of(figure, experiment))
    environment = experiment.result["environment"]
    assert environment["commit"][:12] in text
    assert f"seed {environment['seed']}" in text
    assert environment["host"] in text
    assert experiment.folder.name in text


@pytest.mark.lengthy
@pytest.mark.parametrize(
    ("field", "value", "why"),
    [
        ("verdict", "invalid", "verdict invalid"),
        ("verdict", "unknown", "verdict unknown"),
        ("load", "late", "load late"),
    ],
)
def test_withheld_mechanism_is_named_but_not_drawn(edited, field, value, why):
    name = "megaphone-batched"

    def spoil(result):
        for run in result["runs"]:
            if run["mechanism"] == name:
                run[field] = value

    experiment = edited(spoil)
    assert name not in {run.mechanism for run in experiment.typical() + experiment.comparable()}
    colour = theme.mechanism_colour(name)
    for figure in SHOWN:
        svg = svg_of(figure, experiment)
        assert re.search(rf"withheld:.*{name} r\d+ \({why}\)", text_of(svg)), figure.name
        if figure.name not in {"verdicts", "epoch_phases", "epoch_timeline", "memory_timeline"}:
            assert colour not in svg, figure.name


def test_no_comparable_run_gives_the_verdicts_alone(edited):
    experiment = edited(lambda result: [run.update(verdict="unknown") for run in result["runs"]])
    drawn = [figure.name for figure in all_figures() if svg_of(figure, experiment) is not None]
    assert drawn == ["verdicts"]


def test_same_result_gives_the_same_file(folder):
    figure = next(figure for figure in all_figures() if figure.name == "latency_duration")
    assert svg_of(figure, load(folder)) == svg_of(figure, load(folder))


def test_the_middle_round_stands_for_a_mechanism(edited):
    def three_rounds(result):
        run = next(run for run in result["runs"] if run["migrations"])
        peaks = {0: 900.0, 1: 100.0, 2: 500.0}
        result["runs"] = [json.loads(json.dumps(run)) | {"round": round_} for round_ in peaks]
        for entry in result["runs"]:
            entry["latency_ms"]["migrating"]["max"] = peaks[entry["round"]]

    assert [run.round for run in edited(three_rounds).typical()] == [2]


def test_colours_are_fixed_by_name_and_told_apart():
    known = [
        "none",
        "runtime-restart",
        "megaphone-all-at-once",
        "megaphone-fluid",
        "megaphone-batched",
        "meces",
        "rhino",
    ]
    assert len({theme.mechanism_colour(name) for name in known}) == len(known)
    assert len({theme.mechanism_marker(name) for name in known}) == len(known)
    for name in known:
        others = {f"{name}, real time", name}
        assert len({theme.mechanism_colour(one) for one in others}) == 2
        assert len({theme.mechanism_marker(one) for one in others}) == 2
    assert theme.mechanism_colour("of-somebody-else") == theme.mechanism_colour("of-somebody-else")


def test_each_colour_has_one_name_and_a_dark_twin():
    assert theme.LIGHT.keys() == theme.DARK.keys()
    assert len(set(theme.LIGHT.values())) == len(theme.LIGHT)
    assert theme.with_variables(f"fill: {theme.LIGHT['ink'].upper()}") == "fill: var(--ink)"


def test_thin_keeps_the_peak():
    x, y = np.arange(5_000.0), np.zeros(5_000)
    y[3_333] = 7.0
    few_x, few_y = theme.thin(x, y, most=100)
    assert len(few_x) == len(few_y) <= 100
    assert few_y.max() == 7.0


def test_due_records_follow_the_rate_s_shape(folder, tmp_path):
    run = load(folder).runs[0]
    stepped = type(run)(run.entry, tmp_path)
    (tmp_path / "load.json").write_text(json.dumps({"rate": 10, "due_by_second": [10, 20, 70]}))
    ends, due = timelines.scheduled_per_second(stepped)
    assert (ends.tolist(), due.tolist()) == ([1, 2, 3], [10, 10, 50])
    ends, due = timelines.scheduled_per_second(run)
    assert due.tolist() == [run.load["rate"]], "a load that has but a rate"


def test_a_mechanism_that_never_migrates_is_the_control_of_highest_latency_against_duration(folder):
    figure = next(figure for figure in all_figures() if figure.name == "latency_duration")
    svg = svg_of(figure, load(folder))
    assert "none (no migration)" in text_of(svg)
    assert theme.mechanism_colour("none") in svg


def test_missing_values_are_none_and_shown_as_a_dash():
    for metric in metrics.METRICS:
        assert metric.value({}) is None
        assert (
            metrics.show(metric.value({"latency_ms": {"steady": {"p50": None}}, "migrations": []}), metric.unit)
            == metrics.DASH
        )


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (12.34, "ms", "12.3 ms"),
        (1234.5, "ms", "1,234 ms"),
        (12_345.0, "ms", "12.3 s"),
        (0.5, "s", "0.50 s"),
        (1536, "B", "1.50 KiB"),
        (3 << 30, "B", "3 GiB"),
        (1.1, "x", "1.10\N{MULTIPLICATION SIGN}"),
        (1_000_000, "count", "1,000,000"),
        (0.0123, "share", "1.2%"),
    ],
)
def test_values_are_shown_with_their_unit(value, unit, shown):
    assert metrics.show(value, unit) == shown


def test_a_line_cut_off_at_the_end_is_left_out_and_any_other_raises(folder, tmp_path):
    run = load(folder).runs[0]
    copy = type(run)(run.entry, tmp_path)
    (tmp_path / "events.jsonl").write_text('{"at_us": 1, "kind": "load_begin"}\n{"at_us": 2, "ki')
    assert [event["at_us"] for event in copy.events] == [1]
    (tmp_path / "memory.jsonl").write_text('{"at_us": \n{"at_us": 2}\n')
    with pytest.raises(ValueError, match=r"memory\.jsonl line 1"):
        _ = copy.memory


def test_unreadable_result_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"result\.json cannot be read"):
        load(tmp_path)


def test_the_restart_shown_is_spark_s_own_where_there_is_one(folder):
    runs = load(folder).runs
    native = type(runs[0])({**runs[0].entry, "mechanism": "native-repartition"}, folder)
    chosen = restart_and_live([*runs, native])
    assert [run.mechanism for run in chosen] == ["native-repartition", "megaphone-batched"]
    assert restart_and_live([native]) == []
    sooner = type(runs[0])({**runs[0].entry, "mechanism": "megaphone-batched, real time"}, folder)
    assert restart_and_live([sooner, *runs, native])[1:] == [chosen[1], sooner]
    assert restart_and_live([sooner, native]) == [native, sooner]
