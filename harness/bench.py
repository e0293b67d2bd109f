"""An experiment from parameters to report: its runs one after another, each in a process of its own."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness.experiment import Experiment, Run
from harness.files import write_json
from harness.live import LiveView
from harness.report.report import write_report
from harness.results.environment import environment
from harness.results.summary import write_result
from impls.errors import UsageError
from plots.figures import write_all

__all__ = ["bench", "find_earlier", "prepare"]

_ROOT = Path(__file__).resolve().parents[1]
_END_DEADLINE_S = 60.0


def find_earlier(experiment: Experiment, output: Path, *, finished: bool) -> Path | None:
    """Returns the newest result folder of the same experiment that is finished (or not), None if there is none."""
    for path in sorted(output.glob("*/experiment.json"), reverse=True):
        data = json.loads(path.read_text())
        if data["digest"] == experiment.digest() and (path.parent / "done").exists() == finished:
            return path.parent
    return None


def _unchanged(folder: Path) -> bool:
    """Returns whether the code is still that of an earlier result."""
    before, now = json.loads((folder / "experiment.json").read_text())["environment"], environment(0)
    return not now["dirty"] and not before["dirty"] and before["commit"] == now["commit"]


def prepare(experiment: Experiment, output: Path) -> Path:
    """Makes the result folder with experiment.json and a run.json for every run, and returns it."""
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    folder = output / f"{stamp}-{experiment.name}"
    try:
        folder.mkdir(parents=True)
        for run in experiment.runs():
            (folder / "runs" / run.folder).mkdir(parents=True)
            write_json(folder / "runs" / run.folder / "run.json", run.to_json())
        write_json(
            folder / "experiment.json",
            {**experiment.to_json(), "digest": experiment.digest(), "environment": environment(experiment.seed)},
        )
    except OSError as error:
        raise UsageError(f"The result folder {folder} cannot be made: {error.strerror}.") from error
    return folder


def bench(
    experiment: Experiment, output: Path = _ROOT / "results", *, force: bool = False, resume: bool = False
) -> tuple[Path, int]:
    """Carries an experiment out and returns (result folder, exit code).

    The exit code is 0 when every run is valid, 1 when one is not, 130 when it was cut off (what was measured is kept).

    Raises:
        UsageError: bad input, or nothing to resume.
    """
    earlier = None if force or resume else find_earlier(experiment, output, finished=True)
    if earlier is not None and _unchanged(earlier):
        return earlier, 0
    folder = find_earlier(experiment, output, finished=False) if resume else None
    if resume and folder is None:
        raise UsageError("There is no unfinished result of this experiment to resume: leave --resume out.")
    folder = folder or prepare(experiment, output)
    cut_off = False
    with LiveView(experiment, folder) as view:
        try:
            for run in experiment.runs():
                _carry_out(run, folder / "runs" / run.folder, view)
        except KeyboardInterrupt:
            cut_off = True
            view.note("cut off; `--resume` with the same options goes on")
        result = write_result(folder)
        view.note("drawing")
        write_all(folder)
        write_report(folder)
    if all((folder / "runs" / run.folder / "done").exists() for run in experiment.runs()):
        (folder / "done").touch()
    bad = [run for run in result["runs"] if run["verdict"] != "valid"]
    return folder, 130 if cut_off else int(bool(bad))


def _carry_out(run: Run, folder: Path, view: LiveView) -> None:
    if (folder / "done").exists():
        view.skipped(run)
        return
    view.begin(run)
    (folder / "error.json").unlink(missing_ok=True)
    with (folder / "run.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "harness.run.process", str(folder)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, cwd=_ROOT, start_new_session=True,
        )  # fmt: skip
        try:
            for line in _lines(process):
                if "error" in line:
                    _failed(process, line["error"], folder)
                view.progress(run, line)
        finally:
            _end(process)
    if process.returncode and not (folder / "error.json").exists():
        _failed(process, f"The run ended with exit code {process.returncode}; its log is {folder / 'run.log'}.", folder)
    view.end(run, folder)


def _lines(process: subprocess.Popen[bytes]) -> Iterator[dict[str, Any]]:
    assert process.stdout is not None
    for raw in process.stdout:
        try:
            yield json.loads(raw)
        except ValueError:  # a library's own words on standard output
            continue


def _failed(process: subprocess.Popen[bytes], message: str, folder: Path) -> None:
    if process.poll() is None:
        process.wait(_END_DEADLINE_S)
    if process.returncode == 2:
        raise UsageError(message)
    write_json(folder / "error.json", {"error": message})


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends a run: closing its standard input asks it to, and it has a minute to clean up."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()
    end = time.monotonic() + _END_DEADLINE_S
    while process.poll() is None and time.monotonic() < end:
        time.sleep(0.05)
    process.stdout.close()
    if process.poll() is None:
        process.kill()
        process.wait(5)
