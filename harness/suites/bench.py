"""An experiment from parameters to report: its runs one after another, each in a process of its own."""

from pathlib import Path

from harness.experiment.description import Experiment
from harness.files import ROOT, write_json
from harness.live.state import LiveState
from harness.live.view import LiveView
from harness.options import CUT_OFF
from harness.report.report import write_report
from harness.results.environment import environment
from harness.results.place import find_earlier, making, new_folder, unchanged
from harness.results.summary import write_result
from harness.run.carry_out import carry_out_all
from impls.errors import UsageError
from plots.figures import write_all

__all__ = ["bench", "prepare"]


def prepare(experiment: Experiment, output: Path) -> Path:
    """Makes the result folder with experiment.json and a run.json for every run, and returns it."""
    folder = new_folder(output, experiment.name)
    with making(folder):
        for run in experiment.runs():
            (folder / "runs" / run.folder).mkdir(parents=True)
            write_json(folder / "runs" / run.folder / "run.json", run.to_json())
        write_json(
            folder / "experiment.json",
            {**experiment.to_json(), "digest": experiment.digest(), "environment": environment(experiment.seed)},
        )
    return folder


def bench(
    experiment: Experiment,
    output: Path = ROOT / "results",
    *,
    force: bool = False,
    resume: bool = False,
    state: LiveState | None = None,
) -> tuple[Path, int]:
    """Carries an experiment out and returns (result folder, exit code).

    What is known of the runs while they go on is in `state`, if one is given.

    The exit code is 0 when every run is valid, 1 when one is not, 130 when it was cut off (what was measured is kept).

    Raises:
        UsageError: bad input, or nothing to resume.
    """
    earlier = None if force or resume else find_earlier(experiment, output, finished=True)
    if earlier is not None and unchanged(earlier):
        return earlier, 0
    folder = find_earlier(experiment, output, finished=False) if resume else None
    if resume and folder is None:
        raise UsageError("There is no unfinished result of this experiment to resume: leave --resume out.")
    folder = folder or prepare(experiment, output)
    cut_off = False
    with LiveView(experiment, folder, state=state) as view:
        try:
            carry_out_all(experiment.runs(), folder / "runs", view)
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
    return folder, CUT_OFF if cut_off else int(bool(bad))
