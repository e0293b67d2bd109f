"""A run in real time is recorded by epochs, and its figures come from them as from epochs."""

import io
import json

import numpy as np
import pytest
from clocks import set_clock
from rich.console import Console
from synthetic import new_experiment, write_run
from telling import BEGIN_US, RUN, epoch_record

from harness.experiment.description import Experiment, Run
from harness.files import read_json, read_lines, write_json
from harness.live.view import LiveState, LiveView
from harness.measure.cells import Cells
from harness.measure.migrations import outstanding
from harness.report.comparison import comparison, conclusions
from harness.report.report import write_report
from harness.results.summary import validate, write_result
from harness.run.progress import RunProgress
from harness.run.recorder import Recorder
from plots.data import load
from plots.epoch_phases import FIGURE
from plots.figure import all_figures, svg_of


def epoch(number, latencies_ms, commits=4):
    """An epoch in which worker 0 took so many commits."""
    record = epoch_record(epoch=number, latencies_ms=latencies_ms)
    first = record.reports[0]
    first.commits, first.breakdown = commits, {"to_router": 3.0, "wait": 2.0, "apply": 1.0}
    return record


@pytest.fixture
def recorder(tmp_path):
    made = Recorder(tmp_path, real_time=True)
    yield made
    made.close()


def test_the_line_of_an_epoch_has_commits_way_and_median_latency(recorder, tmp_path):
    recorder.on_epoch(epoch(7, np.arange(1, 101)))
    (line,) = read_lines(tmp_path / "epochs.jsonl")
    assert line["turns"] == 4
    assert (line["way_ms"]["to_router"], line["way_ms"]["wait"], line["way_ms"]["apply"]) == (3.0, 2.0, 1.0)
    assert line["latency_ms"] == pytest.approx(50, rel=0.01)
    recorder.on_epoch(epoch_record(epoch=8, latencies_ms=[]))
    assert read_lines(tmp_path / "epochs.jsonl")[1]["latency_ms"] is None
    assert [one["latency_ms"] is None for one in recorder.story()[1]] == [False, True]


def test_an_epoch_has_none_of_it(tmp_path):
    recorder = Recorder(tmp_path)
    recorder.on_epoch(epoch_record(epoch=7, latencies_ms=[5]))
    recorder.close()
    (line,) = read_lines(tmp_path / "epochs.jsonl")
    assert not {"turns", "way_ms", "latency_ms"} & set(line)
    assert "wait" not in line["ms"]


def test_turns_per_second_are_told_and_shown(recorder, capsys, monkeypatch, tmp_path):
    clock = set_clock(monkeypatch, "harness.run.progress")
    progress = RunProgress(recorder)
    progress.say("load")
    for number in range(10):
        recorder.on_epoch(epoch(number, [5, 6]))
    clock.now += 2
    progress.beat()
    line = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert line["turns_per_s"] == 20
    out = io.StringIO()
    view = LiveView(RUN.experiment, tmp_path, Console(file=out, width=200), LiveState())
    view.begin(RUN)
    view.progress(RUN, line)
    assert "20 commits/s" in out.getvalue()
    view.progress(RUN, {**line, "turns_per_s": None, "phase": "draining"})
    assert "epoch 210 ms" in out.getvalue()


def _story(latencies):
    lines = [
        {"epoch": n, "begin_us": n * 100_000, "end_us": n * 100_000 + 90_000, "records": 500, "queued": 0,
         "moved_bins": int(n == 5), "moved_bytes": 8, "longest_pull_ms": 0.0, "ms": {"total": 205.0}, "latency_ms": ms}
        for n, ms in enumerate(latencies)
    ]  # fmt: skip
    events = [{"kind": kind, "id": "m", "label": "there", "at_us": 500_000, "epoch": 5} for kind in
              ("command", "migration_begin", "migration_end")]  # fmt: skip
    return events, lines


def test_steady_state_is_back_when_the_latency_is():
    calm = [15.0, 16.0, None, 14.0, 15.0, 80.0]
    assert outstanding(*_story([*calm, 60.0, 50.0, 40.0]), expected=1, bins=16) == "steady state was not back"
    assert outstanding(*_story([*calm, 60.0, None, 16.0, 17.0]), expected=1, bins=16) == ""


def test_records_of_an_epoch_are_done_no_later_than_their_interval_allows():
    one = np.ones(2, np.int64)
    cells = Cells(one, one * 1_000_000, np.array([0, 3]), one * 15_000, one, one.astype(bool)).done_in_time()
    assert cells.done_us[0] == pytest.approx(250_000 + 15_000, rel=0.001)
    assert cells.done_us[1] == 1_000_000
    assert cells.scheduled_us[0] < 250_000


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """An experiment that compares a mechanism in both modes with Spark's own restart."""
    folder = new_experiment(tmp_path_factory, rounds=1, seconds=12)
    described = read_json(folder / "experiment.json")
    names = ["none", "megaphone-batched", "native-repartition"]
    write_json(folder / "experiment.json", {**described, "mechanisms": names, "modes": ["micro-batch", "real-time"]})
    for place in (folder / "runs").iterdir():
        if not any(place.name.endswith(f"{name}-r0") for name in names):
            for file in place.iterdir():
                file.unlink()
    experiment = Experiment(mechanisms=tuple(names), modes=("micro-batch", "real-time"))
    for run in experiment.runs():
        if run.mode == "real-time" or run.mechanism == "native-repartition":
            write_run(folder / "runs" / f"5{run.folder}", mechanism=run.title, mode=run.mode, seconds=12)
    write_result(folder)
    return load(folder)


@pytest.mark.lengthy
def test_a_run_in_real_time_is_an_entry_of_the_schema_with_its_way(both):
    result = validate(both.folder)
    sooner = next(run for run in result["runs"] if run["mechanism"] == "megaphone-batched, real time")
    assert sooner["mode"] == "real-time"
    assert sooner["verdict"] == "valid"
    assert sooner["way"]["steady"]["mean_ms"]["to_worker"] == 3.0
    assert 0.2 < sooner["way"]["steady"]["share"] < 1
    assert sooner["warmup_s"] is not None
    assert sooner["latency_ms"]["steady"]["p50"] < 60
    assert sooner["migrations"][0]["peak_ratio"] is not None
    assert next(run for run in result["runs"] if run["mechanism"] == "megaphone-batched")["way"] is None


@pytest.mark.lengthy
def test_both_modes_are_lines_of_their_own_in_every_table(both):
    names = [
        "none", "none, real time", "megaphone-batched", "megaphone-batched, real time", "native-repartition",
    ]  # fmt: skip
    assert both.mechanisms() == names
    assert {line.mechanism for line in comparison(both)} == set(names)
    assert [line.mechanism for line in conclusions(both)] == names
    assert "No run was completed." not in [line.text for line in conclusions(both)]
    page = write_report(both.folder).read_text()
    assert "megaphone-batched, real time" in page
    assert '"unit":"epoch"' in page


@pytest.mark.lengthy
def test_the_figures_show_epochs_of_one_mode_and_the_way_of_the_other(both):
    drawn = {figure.name: svg for figure in all_figures() if (svg := svg_of(figure, both)) is not None}
    assert "router to worker" in drawn["latency_breakdown"]
    assert "3 commits/s" not in drawn["latency_breakdown"]
    assert "commits/s" in drawn["latency_breakdown"]
    assert "real time" not in drawn["epoch_phases"].split("withheld")[0].split("<metadata")[0].replace("real time:", "")
    assert "megaphone-batched, real time" in drawn["restart_against_live"]
    runs = [run for run in both.runs if not run.real_time]
    assert FIGURE.draw(type(both)(both.folder, both.result, tuple(runs))) is None


def test_a_run_of_this_mode_is_known_by_its_file(tmp_path):
    write_json(tmp_path / "run.json", Run(Experiment(mechanisms=("meces",)), "meces", 0, 0, mode="real-time").to_json())
    assert Run.read(tmp_path).real_time
    assert BEGIN_US > 0
