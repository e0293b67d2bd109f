"""An experiment from parameters to report: its runs one after another, each in a process of its own."""

import json
from collections import deque
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from harness.experiment import Experiment, Run
from harness.files import write_json
from harness.live import LiveView
from harness.report.report import write_report
from harness.results.environment import environment
from harness.results.summary import write_result
from harness.run.child import RunProcess
from harness.run.disturb import disturbed
from impls.errors import UsageError
from plots.figures import write_all

__all__ = ["bench", "find_earlier", "prepare"]

_ROOT = Path(__file__).resolve().parents[1]


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
            _carry_out_all(experiment.runs(), folder / "runs", view)
        except KeyboardInterrupt:
            cut_off = True
            view.note("cut off; `--resume` with the same options goes on")
        result = write_result(folder)
        view.note("drawing")
        write_all(folder)
        write_report(folder, drawn=True)
    if all((folder / "runs" / run.folder / "done").exists() for run in experiment.runs()):
        (folder / "done").touch()
    bad = [run for run in result["runs"] if run["verdict"] != "valid"]
    return folder, 130 if cut_off else int(bool(bad))


def _carry_out_all(runs: Sequence[Run], folder: Path, view: LiveView) -> None:
    """Carries runs out one after another; broker and Spark of the next start while the oracle checks the one before."""
    left = deque(runs)
    ready: RunProcess | None = None

    def prepare_next() -> None:
        nonlocal ready
        if ready is None and left and not (folder / left[0].folder / "done").exists():
            ready = RunProcess(folder / left[0].folder)

    try:
        while left:
            run = left.popleft()
            if (folder / run.folder / "done").exists():
                view.skipped(run)
                continue
            process, ready = ready or RunProcess(folder / run.folder), None
            if not _carry_out(run, process, view, prepare_next):
                view.note(f"{run.folder}: its fault has ended it; it is resumed")
                _carry_out(run, RunProcess(folder / run.folder), view, prepare_next)
    finally:
        if ready is not None:
            ready.end()


def _carry_out(run: Run, process: RunProcess, view: LiveView, prepare_next: Callable[[], None]) -> bool:
    """Carries a run out; returns False when the fault it was to stand has ended its process, which can be resumed."""
    view.begin(run)
    error: str | None = None
    (process.folder / "error.json").unlink(missing_ok=True)
    before = disturbed(process.folder)
    try:
        process.go()
        for line in process.lines():
            error = line.get("error", error)
            view.progress(run, line)
            if line.get("phase") == "checking":
                prepare_next()
        code = process.wait()
    finally:
        process.end()
    if code == 2:
        raise UsageError(error or f"The run was refused; its log is {process.folder / 'run.log'}.")
    if code and disturbed(process.folder) and not before:
        return False
    if code:
        told = error or f"The run ended with exit code {code}; its log is {process.folder / 'run.log'}."
        write_json(process.folder / "error.json", {"error": told})
    view.end(run, process.folder)
    return True
