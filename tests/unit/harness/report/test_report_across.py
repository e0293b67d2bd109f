"""The page of many experiments says every verdict first, shows no number of a withheld run, and names what it skips."""

import json
import re
import shutil
import statistics
import xml.etree.ElementTree as ET

import pytest
from pages import Page
from synthetic import MECHANISMS, write_experiment, write_sweep

from harness.report.across import compare, find_experiments, write_comparison
from harness.results.summary import validate
from harness.suites.sweep import make_grid
from plots import theme
from plots.across import ACROSS, svg_across
from plots.marks import groups_of, labels_of, marks_of
from plots.metrics import by_name

SECRET = 4321.0  # a latency that only withheld runs have
COLUMNS = (
    "mechanism", "experiment", "workload", "keys", "rate", "workers", "round", "verdict", "load", "machine",
    "peak ratio", "peak", "steady p50", "steady p99", "duration", "moved bytes", "commit",
)  # fmt: skip


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Two experiments of one name, a sweep, one cut off, one that is broken and a folder of something else."""
    path = tmp_path_factory.mktemp("results")
    first = path / "20260101-000000-synthetic"
    first.mkdir()
    write_experiment(first, seconds=18, rate=200)
    rewrite(shutil.copytree(first, path / "20260102-000000-synthetic"), spoil)
    sweep = path / "20260103-000000-swept"
    sweep.mkdir()
    write_sweep(sweep, make_grid({"mechanism": "none,megaphone-all-at-once", "keys": "400k,1600k", "name": "swept"}))
    without_runs = shutil.ignore_patterns("runs")
    (shutil.copytree(first, path / "20260104-000000-cut-off", ignore=without_runs) / "done").unlink()
    broken = shutil.copytree(first, path / "20260105-000000-broken", ignore=without_runs)
    (broken / "result.json").write_text('{"schema": 1, "runs": 3}')
    (path / "holiday").mkdir()
    (path / "holiday" / "photo.txt").write_text("sea")
    return path


def rewrite(folder, change):
    result = json.loads((folder / "result.json").read_text())
    change(result)
    (folder / "result.json").write_text(json.dumps(result))
    validate(folder)


def spoil(result):
    result["environment"]["commit"] = "fedcba9876543210fedcba9876543210fedcba98"
    runs = {run["mechanism"]: run for run in result["runs"] if run["round"] == 1}
    spoiled = {
        "megaphone-fluid": ("invalid", "met"),
        "megaphone-batched": ("unknown", "met"),
        "none": ("valid", "late"),
    }
    for name, (verdict, load) in spoiled.items():
        runs[name].update(verdict=verdict, load=load)
        runs[name]["latency_ms"]["steady"].update(p50=SECRET, p99=SECRET, max=SECRET)


@pytest.fixture(scope="module")
def found(results):
    return find_experiments([results])


@pytest.fixture(scope="module")
def html(found, results):
    before = {path: path.stat().st_mtime_ns for path in results.rglob("*")}
    page = write_comparison(found, results.parent / "pages" / "compare.html")
    assert {path: path.stat().st_mtime_ns for path in results.rglob("*")} == before, "results are only read"
    return page.read_text()


@pytest.fixture(scope="module")
def page(html):
    return Page(html)


@pytest.mark.lengthy
def test_page_is_well_formed_small_and_makes_no_request(html, page):
    assert page.open == []
    assert len(page.ids) == len(set(page.ids)), "an id occurs twice"
    assert len(html.encode()) < 3_000_000
    assert not re.findall(r"(?:https?:)?//[\w.]+\.\w+", html)
    assert not re.search(r"@import|<img|<script src|<iframe", html)
    body = html[html.index("<body") :]
    assert not [name for name, colour in theme.LIGHT.items() if colour in body], "a colour that dark mode cannot change"


def test_links_lead_to_a_run_s_line(page, found):
    runs = sum(len(experiment.runs) for experiment in found.experiments)
    links = [address for address in page.addresses if address.startswith("#run-")]
    assert sorted(links) == sorted(f"#run-{place}" for place in range(runs))
    assert {link[1:] for link in links} <= set(page.ids)


def test_every_verdict_comes_before_any_number(html, found):
    first = html[html.index("<body") : html.index("<h2>Runs</h2>")]
    told = re.findall(r'aria-label="([^"]+): (\w+), load (\w+), machine unknown"', first)
    runs = [run for experiment in found.experiments for run in experiment.ordered()]
    assert [(verdict, load) for _, verdict, load in told] == [(run.verdict, run.load_kept) for run in runs]
    assert first.index("runs valid") < first.index("synthetic")
    assert not re.search(r"\d (ms|MiB)\b", first.replace(first[first.index("Withheld") :], ""))


def test_the_table_has_every_run_and_column(html, found):
    table = html[html.index("<table") : html.index("</table>")]
    assert tuple(re.findall(r"<th[^>]*>([^<]+)</th>", table)) == COLUMNS
    runs = sum(len(experiment.runs) for experiment in found.experiments)
    assert table.count("<tr id=") == table.count("<tr") - 1 == runs
    assert "1,600,000" in table, "a sweep's runs show their own cell's keys"
    assert {"fedcba98", "01234567"} <= set(re.findall(r">(\w{8})</td>", table))


def test_withheld_runs_are_named_and_show_no_number(html, page):
    assert "4,321" not in page.text
    assert 'data-value="4321' not in html
    rows = re.findall(r'<tr id="run-\d+" class="withheld">(.*?)</tr>', html, re.DOTALL)
    assert len(rows) == 3
    for row in rows:
        assert row.count('data-value=""') == 6
    listed = page.text[page.text.index("Withheld") : page.text.index("Runs")]
    for words in ("megaphone-fluid r1", "verdict invalid", "megaphone-batched r1", "verdict unknown", "load late"):
        assert words in listed


def test_withheld_runs_are_in_no_mark(found):
    spoiled = next(group for group in groups_of(found.experiments) if "20260102" in group.label)
    marks = {mark.mechanism: mark for mark in marks_of(spoiled, lambda run: run.entry["latency_ms"]["steady"]["p99"])}
    assert {name: mark.rounds for name, mark in marks.items()} == {
        name: 1 if name in {"none", "megaphone-fluid", "megaphone-batched"} else 2 for name in MECHANISMS
    }
    assert max(mark.high for mark in marks.values()) < SECRET


def test_a_mark_is_the_median_of_its_runs_with_lowest_and_highest(found):
    group = groups_of(found.experiments)[0]
    metric = by_name("peak_ratio")
    for mark in marks_of(group, lambda run: metric.value(run.entry)):
        values = [metric.value(run.entry) for run in group.runs_of(mark.mechanism)]
        assert (mark.middle, mark.low, mark.high) == (statistics.median(values), min(values), max(values))
        assert mark.rounds == 2


@pytest.mark.parametrize("figure", ACROSS, ids=lambda figure: figure.name)
def test_a_figure_has_one_sentence_and_every_mark_says_its_values(figure, found):
    assert figure.caption.count(".") == 1
    assert figure.caption.endswith(".")
    element = ET.fromstring(svg_across(figure, found.experiments))
    marks = [node for node in element.iter() if node.get("class") == "mark"]
    assert len(marks) >= 8
    for mark in marks:
        text = mark[0].text
        assert re.search(r"^[a-z-]+, .*\d.*\d runs?", text), text
        assert list(mark.iter())[1:], "a mark that is not drawn"


def test_figures_without_a_run_are_left_out(results, tmp_path):
    folder = shutil.copytree(results / "20260101-000000-synthetic", tmp_path / "alone")
    rewrite(folder, lambda result: [run.update(verdict="unknown") for run in result["runs"]])
    page = Page(write_comparison(find_experiments([folder]), tmp_path / "page.html").read_text())
    assert "0 of 10 runs valid" in page.text
    assert "There is no run that may be shown." in page.text


def test_experiments_of_one_name_are_told_apart(found):
    assert labels_of(found.experiments) == ["20260101-000000-synthetic", "20260102-000000-synthetic", "swept"]
    assert labels_of(found.experiments[1:]) == ["synthetic", "swept"]
    assert labels_of([found.experiments[0]] * 2)[0].startswith("/")


def test_what_is_no_finished_experiment_is_named_with_its_reason(found, page):
    for name, why in (("cut-off", "is unfinished"), ("broken", "breaks the schema"), ("holiday", "no result folder")):
        (sentence,) = [one for one in found.skipped if name in one]
        assert why in sentence
        assert sentence in page.text
    assert len(found.skipped) == 3


def test_names_are_escaped(results, tmp_path):
    folder = shutil.copytree(results / "20260101-000000-synthetic", tmp_path / "hostile")
    rewrite(folder, lambda result: result["experiment"].update(name="<script>alert(1)</script>"))
    assert "<script>alert" not in write_comparison(find_experiments([folder]), tmp_path / "page.html").read_text()


def test_the_command_prints_the_page_last_and_the_skipped_beside(results, tmp_path, capsys):
    named = ",".join(str(results / name) for name in ("20260101-000000-synthetic", "holiday"))
    assert compare(named, str(tmp_path / "page.html")) == 0
    out, err = capsys.readouterr()
    assert out == f"{tmp_path / 'page.html'}\n"
    assert err.count("\n") == 1
    assert "holiday" in err


@pytest.mark.parametrize(
    ("named", "output", "says"),
    [
        ("nowhere", "page.html", "nowhere does not exist"),
        ("holiday", "page.html", "There is no finished experiment in"),
        ("20260104-000000-cut-off", "page.html", "There is no finished experiment in"),
        ("20260101-000000-synthetic", "holiday/photo.txt/page.html", "cannot be written"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(results, capsys, named, output, says):
    assert compare(str(results / named), str(results / output)) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert says in err
