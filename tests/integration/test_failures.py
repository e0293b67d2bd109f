"""A run that fails says why and where its log is: on the terminal, in result.json and on the report."""

import io
import json
import os
import signal

import pytest
from rich.console import Console

from harness.experiment.description import Experiment
from harness.live.view import LiveView
from harness.results.summary import validate
from harness.suites.bench import prepare_runs, run_and_report
from impls.errors import UsageError

_SMALL = Experiment(mechanisms=("none",), keys=1000, bins=8, rate=1000, duration_s=3.0, lead_in_s=0.0, workers=2)


class _Telling:
    """Runs one experiment whose run fails, and keeps what the terminal shows of it."""

    def __init__(self, folder, *, terminal=False, experiment=_SMALL):
        self.folder = folder / "result"
        prepare_runs(experiment, ((run, None) for run in experiment.runs()), self.folder, experiment.seed)
        self.experiment, self.out = experiment, io.StringIO()
        [run] = experiment.runs()
        self.place = self.folder / "runs" / run.folder
        self.log = self.place / "run.log"
        self._console = Console(file=self.out, force_terminal=terminal, width=400, _environ={})

    def carry_out(self, kind=LiveView):
        with kind(self.experiment, self.folder, self._console) as view:
            return run_and_report(self.experiment.runs(), self.folder, view, "")

    def is_told(self, reason):
        """Asserts that each place where the failure is told has the reason, and the log's path."""
        shown = self.out.getvalue()
        assert reason in shown
        assert f"its log is {self.log}." in shown
        assert self.log.is_file()
        assert validate(self.folder / "result.json")
        [run] = json.loads((self.folder / "result.json").read_text())["runs"]
        assert run["verdict"] == "unknown"
        assert reason in " ".join(run["reasons"])
        page = (self.folder / "report.html").read_text()
        assert reason in page.replace("&#39;", "'")
        assert f'its log is <a href="{self.log.relative_to(self.folder)}">' in page


class _Killing(LiveView):
    """Kills the run's process when it says its first line."""

    def progress(self, run, line):
        super().progress(run, line)
        for pid in _processes_of(self._folder / "runs" / run.folder):
            os.kill(pid, signal.SIGKILL)


def _processes_of(folder):
    import psutil

    return [p.pid for p in psutil.process_iter(["cmdline"]) if (p.info["cmdline"] or [])[-1:] == [str(folder)]]


@pytest.mark.parametrize("terminal", [False, True])
def test_a_run_whose_process_is_killed(tmp_path, terminal):
    told = _Telling(tmp_path, terminal=terminal)
    assert told.carry_out(_Killing) == 1
    told.is_told("The process was killed by SIGKILL")


def test_a_run_that_is_refused(tmp_path):
    refused = Experiment(**{**_SMALL.to_json(), "mechanisms": ("none",), "master": "spark://127.0.0.1:1"})
    told = _Telling(tmp_path, experiment=refused)
    with pytest.raises(UsageError, match=r"No Spark master listens at .*; its log is .*run\.log") as caught:
        told.carry_out()
    assert str(told.log) in str(caught.value)
    told.is_told("No Spark master listens at spark://127.0.0.1:1")


def test_a_run_whose_program_fails(tmp_path):
    told = _Telling(tmp_path)
    run = json.loads((told.place / "run.json").read_text())
    (told.place / "run.json").write_text(json.dumps({**run, "of another version": 1}))
    assert told.carry_out() == 1
    told.is_told("TypeError: ")
    assert "Traceback" in told.log.read_text()
