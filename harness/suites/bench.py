"""An experiment from parameters to report: its runs one after another, each in a process of its own."""

import sys
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from harness.experiment.description import Experiment
from harness.experiment.make import experiments_from
from harness.files import RESULTS
from harness.live.endpoint import serving
from harness.live.state import LiveState
from harness.live.view import LiveView
from harness.options import CUT_OFF, ending
from harness.report.comparison import print_comparison
from harness.results.place import find_earlier, new_folder, unchanged
from harness.run.runs import begin_anew, busy_runs, check_machine
from harness.setup.jars import ensure_jars
from harness.suites.runs import prepare_runs, run_and_report
from impls.errors import UsageError

__all__ = ["bench", "run_bench"]


def bench(
    experiment: Experiment,
    output: Path = RESULTS,
    *,
    force: bool = False,
    resume: bool = False,
    state: LiveState | None = None,
    again: int = 0,
) -> tuple[Path, int]:
    """Runs an experiment and returns (result folder, exit code).

    A run during which the machine was busy is made anew `again` times at most; it is left out of comparisons, and does
    not change the exit code.

    What is known of the runs while they go on is in `state`, if one is given.

    The exit code is 0 when every run is valid, 1 when one is not, 130 when it was cut off (what was measured is kept).

    Raises:
        UsageError: bad input, or nothing to resume.
    """
    earlier = None if force or resume else find_earlier(experiment, output, finished=True)
    if earlier is not None and unchanged(earlier):
        return earlier, 0
    folder = _to_resume(experiment, output) if resume else new_folder(output, experiment.name)
    if not resume:
        prepare_runs(experiment, ((run, None) for run in experiment.runs()), folder, experiment.seed)
    with LiveView(experiment, folder, state=state) as view:
        code = run_and_report(experiment.runs(), folder, view, "`--resume` with the same options goes on", anew=again)
    return folder, code


def _to_resume(experiment: Experiment, output: Path) -> Path:
    """Returns the unfinished result, or a finished one whose runs on a busy machine are begun anew.

    Raises:
        UsageError: there is neither.
    """
    if (found := find_earlier(experiment, output, finished=False)) is not None:
        return found
    found = find_earlier(experiment, output, finished=True)
    busy = [] if found is None else busy_runs(experiment.runs(), found / "runs")
    if found is None or not busy:
        raise UsageError(
            "There is no unfinished result of this experiment to resume, and none with a run on a busy machine: leave "
            "--resume out."
        )
    for run in busy:
        begin_anew(found / "runs" / run.folder)
    (found / "done").unlink()
    return found


@ending()
def run_bench(options: Mapping[str, Any]) -> int:
    """Runs an experiment, prints the path of its result as the last line and returns the exit code."""
    experiments = experiments_from(options)
    state = LiveState()
    port = options.get("metrics_port")
    with nullcontext() if port is None else serving(str(port), state):
        return _run_all(experiments, options, state)


def _run_all(experiments: list[Experiment], options: Mapping[str, Any], state: LiveState) -> int:
    """Runs the experiments one after another and returns the worst exit code; raises UsageError for bad input."""
    output = Path(options.get("output") or RESULTS)
    for experiment in experiments:
        check_machine(experiment, output)
    ensure_jars()
    codes = []
    given = {name: bool(options.get(name)) for name in ("force", "resume")}
    for experiment in experiments:
        folder, code = bench(experiment, output, **given, state=state)
        print_comparison(folder)
        sys.stdout.write(f"{folder}\n")
        codes.append(code)
        if code == CUT_OFF:
            break
    return max(codes)
