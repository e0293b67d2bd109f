"""What a run tells once a second is what its recorder holds, and what the terminal and the endpoint then read."""

import io
import json

import numpy as np
import pytest
from clocks import set_clock
from rich.console import Console
from telling import RUN, epoch_record

from harness.lab.child import Cancelled
from harness.live.view import LiveState, LiveView
from harness.run.check import due_of
from harness.run.progress import RunProgress, line_of
from harness.run.recorder import Recorder


@pytest.fixture
def recorder(tmp_path):
    made = Recorder(tmp_path)
    yield made
    made.close()


def test_a_line_has_what_is_known_and_none_for_what_is_not(recorder):
    line = line_of(recorder, "starting", rate=None, due=None)
    assert json.loads(json.dumps(line)) == line
    assert (line["epoch"], line["rate"], line["lag"], line["latency_ms"], line["records"]) == (None, None, None, {}, 0)


def test_a_line_after_an_epoch_and_a_command(recorder):
    recorder.event("command", {"id": "a", "moves": {"bins": 8, "size": 4096, "bins_minimum": 8, "size_minimum": 4096}})
    recorder.event("command", {"id": "b"})  # of a query that does not say what it moves
    recorder.on_epoch(epoch_record(epoch=7, latencies_ms=np.arange(1, 101)))
    line = line_of(recorder, "load", rate=50.0, due=130)
    assert (line["records"], line["lag"], line["rate"], line["epoch"]) == (100, 30, 50.0, 7)
    assert line["latency_ms"] == pytest.approx({"p50": 50, "p99": 99, "max": 100}, rel=0.01)
    assert (line["moved_bins"], line["moved_bytes"]) == (2, 1024)
    assert (line["planned_bins"], line["planned_bytes"], line["misplaced"]) == (8, 4096, 6)
    assert line["phases_ms"]["pull"] == 5.0
    assert line["epoch_ms"] == pytest.approx(sum(epoch_record(7, np.arange(1, 101)).ms.values()))
    assert "total" not in line["phases_ms"]
    assert line_of(recorder, "load", rate=None, due=90)["lag"] == 0
    over = line_of(recorder, "checking", rate=50.0, due=130)
    assert (over["rate"], over["lag"], over["latency_ms"], over["records"]) == (None, None, {}, 100)


@pytest.fixture
def clock(monkeypatch):
    """A clock that a test sets."""
    return set_clock(monkeypatch, "harness.run.progress")


def test_the_rate_is_of_the_time_since_the_last_line(recorder, capsys, clock):
    progress = RunProgress(recorder)
    progress.say("load")
    recorder.on_epoch(epoch_record(epoch=1, latencies_ms=np.ones(40)))
    clock.now += 2
    progress.beat()
    clock.now += 0.1
    progress.say("draining")
    assert [json.loads(line)["rate"] for line in capsys.readouterr().out.splitlines()] == [None, 20.0, 20.0]
    clock.now += 0.8
    progress.beat()
    assert capsys.readouterr().out == "", "less than a second has passed"
    clock.now += 0.2
    progress.beat()
    assert json.loads(capsys.readouterr().out)["rate"] == 0.0


def test_a_run_cut_off_is_told_no_more(recorder, capsys):
    progress = RunProgress(recorder)
    progress.parent.gone.set()
    with pytest.raises(Cancelled):
        progress.say("load")
    assert capsys.readouterr().out == ""


def test_records_due_follow_the_schedule(monkeypatch):
    now = 0
    monkeypatch.setattr("harness.run.check.now_us", lambda: now)
    due = due_of({"start_us": 1_000_000, "due_by_second": [10, 30]})
    for now, expected in ((0, 0), (1_500_000, 5), (2_500_000, 20), (9_000_000, 30)):  # noqa: B007 - read by the clock
        assert due() == expected
    assert due_of({"start_us": 0, "due_by_second": [10], "nexmark": {}}) is None
    assert due_of({"start_us": 0}) is None


def test_what_is_shown_is_in_the_state(tmp_path):
    state = LiveState()
    with LiveView(RUN.experiment, tmp_path, Console(file=io.StringIO()), state) as view:
        assert state.now is None
        view.begin(RUN)
        view.progress(RUN, {"phase": "load", "records": 5})
        assert state.now.run == RUN
        assert state.now.line["records"] == 5
        view.end(RUN, tmp_path)
    assert state.now is None
    assert [(ended.run, ended.entry) for ended in state.ended] == [(RUN, {})]
