"""The report opens offline, says the verdicts first, and shows every run."""

import json
import re
import shutil

import numpy as np
import pytest
from pages import Page
from synthetic import MECHANISMS, new_experiment

from harness.report.comparison import comparison
from harness.report.page import replay_of
from harness.report.report import write_report
from plots import theme
from plots.data import load
from plots.metrics import DASH, METRICS


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return new_experiment(tmp_path_factory)


@pytest.fixture(scope="module")
def html(folder):
    path = write_report(folder)
    assert path == folder / "report.html"
    assert not list(folder.glob(".report*")), "the temporary file is left"
    return path.read_text()


@pytest.fixture(scope="module")
def page(html):
    return Page(html)


@pytest.mark.lengthy
def test_page_is_well_formed(page):
    assert page.open == []
    assert len(page.ids) == len(set(page.ids)), "an id occurs twice"


def test_page_makes_no_request(html, page, folder):
    assert not re.findall(r"(?:https?:)?//[\w.]+\.\w+", re.sub(r'xmlns(:\w+)?="[^"]*"', "", html))
    assert not re.search(r"@import|<img|<script src|<iframe", html)
    for address in page.addresses:
        assert address.startswith(("#", "data:,")) or address == "figures/" or (folder / address).is_file(), address


def test_verdicts_and_conclusions_come_first(page, folder):
    experiment = load(folder)
    assert page.text.index("runs valid") < page.text.index("Figures")
    first = page.text[: page.text.index("Figures")]
    for name in experiment.mechanisms():
        assert name in first
    assert "every record was done within" in first


def test_table_has_every_run_and_metric(page, html, folder):
    assert page.rows == len(load(folder).runs) + 1
    assert all(metric.label in page.text for metric in METRICS if metric.in_table)
    assert 'data-value=""' in html
    assert DASH in page.text


def test_size_and_colours(html):
    assert len(html.encode()) < 5_000_000
    body = html[html.index("<body") :]
    assert not [name for name, colour in theme.LIGHT.items() if colour in body], "a colour that dark mode cannot change"
    assert "prefers-color-scheme: dark" in html


def test_comparison_has_the_lowest_peak_first(page, folder):
    lines = comparison(load(folder))
    assert [line.peak for line in lines] == sorted(line.peak for line in lines)
    assert {line.mechanism for line in lines} == set(MECHANISMS)
    first = next(line for line in lines if line.mechanism == "none")
    assert first.control
    assert (first.compared, first.runs) == (2, 2)
    text = page.text[page.text.index("Comparison") : page.text.index("What the columns mean")]
    places = [text.index(line.mechanism) for line in lines]
    assert places == sorted(places)


def test_withheld_runs_come_last_in_the_comparison_without_numbers(folder, tmp_path):
    result = json.loads((folder / "result.json").read_text())
    for run in result["runs"]:
        run["load"] = "late" if run["mechanism"] == "none" else "met"
    (tmp_path / "result.json").write_text(json.dumps(result))
    last = comparison(load(tmp_path))[-1]
    assert (last.mechanism, last.compared, last.runs) == ("none", 0, 2)
    assert set(last.values.values()) == {None}


def test_a_cache_s_hit_rate_is_said(folder, tmp_path):
    def cached(result):
        for run in result["runs"]:
            run["cache"] = {"hits": 1, "misses": 99, "hit_rate": 0.01}

    assert "the workers' caches answered 1.0%" in rewrite(folder, tmp_path, cached).text


def test_parameters_environment_and_files_are_listed(page, folder):
    result = json.loads((folder / "result.json").read_text())
    assert all(name in page.text for name in result["experiment"])
    assert all(name in page.text for name in result["environment"])
    assert any(address.endswith("intervals.hlog") for address in page.addresses)


def rewrite(folder, target, change):
    """Writes the folder's result, changed, into another folder without run files; returns its report."""
    result = json.loads((folder / "result.json").read_text())
    change(result)
    (target / "result.json").write_text(json.dumps(result))
    return Page(write_report(target).read_text())


def test_withheld_run_is_named_with_its_reason_and_has_no_numbers(folder, tmp_path):
    def spoil(result):
        result["runs"] = [run for run in result["runs"] if run["mechanism"] == "megaphone-batched"][:1]
        result["runs"][0].update(verdict="invalid", lost=3)
        result["runs"][0]["latency_ms"]["steady"]["max"] = 4321.0

    page = rewrite(folder, tmp_path, spoil)
    assert "0 of 1 run valid" in page.text
    assert "verdict invalid (3 lost)" in page.text
    assert "4,321" not in page.text
    assert "There is no run that may be shown." in page.text


def test_missing_values_are_dashes(folder, tmp_path):
    def empty(result):
        result["runs"] = [{"mechanism": "none", "round": 0, "verdict": "valid", "load": "met"}]

    page = rewrite(folder, tmp_path, empty)
    assert "1 of 1 run valid" in page.text
    assert page.text.count(DASH) >= len([m for m in METRICS if m.in_table])


def test_experiment_cut_off_before_its_first_run_has_a_report(folder, tmp_path):
    page = rewrite(folder, tmp_path, lambda result: result.update(runs=[]))
    assert "0 of 0 runs valid" in page.text
    assert "No run was completed." in page.text


def test_names_are_escaped(folder, tmp_path):
    def hostile(result):
        result["runs"][0]["mechanism"] = "<script>alert(1)</script>"

    assert (
        "<script>alert(1)</script>"
        not in (rewrite(folder, tmp_path, hostile), (tmp_path / "report.html").read_text())[1]
    )


def embedded(html):
    return json.loads(html.split('id="timelines-data">')[1].split("</script>")[0])


def test_timelines_hold_one_comparable_run_of_each_mechanism(html, folder):
    result = json.loads((folder / "result.json").read_text())
    compared = {run["mechanism"] for run in result["runs"] if run["verdict"] == "valid" and run["load"] == "met"}
    found = embedded(html)
    assert {run["name"] for run in found} == compared
    for run in found:
        assert len(run["at_s"]) == len(run["p50"]) == len(run["max"]) > 10
        assert len(run["epoch_s"]) == len(run["epoch_ms"]) == len(run["queued"]) > 5
        assert all(low <= high for low, high in zip(run["p50"], run["max"], strict=True))


def test_a_replay_gives_back_the_routing_of_every_epoch():
    random = np.random.default_rng(3)
    routing, now = {}, np.zeros(16, np.int64)
    for epoch in range(2, 9):
        now = np.where(random.random(16) < 0.2, random.integers(0, 3, 16), now)
        routing[epoch] = now
    found = replay_of(list(range(9)), routing)
    shown = np.array(found["first"])
    changes = {place: pairs for place, *pairs in found["changes"]}
    for place in range(2, 9):
        pairs = np.array(changes.get(place, []), np.int64).reshape(-1, 2)
        shown[pairs[:, 0]] = pairs[:, 1]
        assert shown.tolist() == routing[place].tolist()
    assert found["workers"] == 1 + max(int(one.max()) for one in routing.values())
    assert replay_of([0, 1], {}) is None
    assert replay_of([0], {0: np.zeros(16_384, np.int64)}) is None


@pytest.mark.lengthy
def test_the_rescales_of_a_policy_are_listed_with_their_reasons(folder, html, tmp_path):
    target = tmp_path / "result"
    shutil.copytree(folder, target)
    run = load(target).ordered()[0]
    line = {"kind": "autoscale", "at_us": run.start_us + 2_500_000, "workers": 1, "wanted": None, "reason": "Enough."}
    lines = [line, {**line, "wanted": 3, "reason": "Three are <needed>."}]
    with (run.folder / "events.jsonl").open("a") as file:
        file.writelines(f"{json.dumps(one)}\n" for one in lines)
    told = write_report(target).read_text()
    assert "2 intervals were decided on, of which 1 rescaled" in told
    assert '<td>2.5</td><td class="text">1 to 3</td><td class="text">Three are &lt;needed&gt;.</td>' in told
    assert "Enough." not in told
    assert "Decisions of the autoscaler" not in html
