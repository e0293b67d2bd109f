"""An experiment from parameters to report, each run in a process of its own; and suites of several experiments."""

import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.experiment.description import Experiment, Run
from harness.experiment.make import experiments_from, names_no_load
from harness.files import RESULTS, read_json, write_json
from harness.live.view import LiveState, LiveView, serving
from harness.options import CUT_OFF, ending
from harness.oracle.verdict import merge
from harness.report.comparison import print_comparison
from harness.report.report import write_report
from harness.results.machine import describe_machine
from harness.results.place import Described, find_earlier, making, new_folder, result_folder, unchanged
from harness.results.summary import CELL_FILE, write_result
from harness.run.runs import Relay, Watcher, begin_anew, busy_runs, check_machine, until_quiet
from harness.setup.java import ensure_jars
from harness.suites.load import loaded
from impls.errors import UsageError
from plots.figure import write_all


def place_run(run: Run, folder: Path, cell: Mapping[str, Any] | None = None) -> None:
    """Makes a new folder for a run with its description, in a sweep with its cell too; one that is done is kept."""
    place = folder / run.folder
    if (place / "done").exists():
        return
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    write_json(place / "run.json", run.to_json())
    if cell is not None:
        write_json(place / CELL_FILE, cell)


def prepare_runs(
    described: Described, runs: Iterable[tuple[Run, Mapping[str, Any] | None]], folder: Path, seed: int
) -> None:
    """Makes the folders of runs, each with its cell or None, and experiment.json where it is missing.

    Raises:
        UsageError: a folder cannot be made.
    """
    with making(folder):
        for run, cell in runs:
            place_run(run, folder / "runs", cell)
        if not (folder / "experiment.json").exists():
            about = {"digest": described.digest(), "environment": describe_machine(seed)}
            write_json(folder / "experiment.json", {**described.to_json(), **about})


def run_and_report(
    runs: Sequence[Run], folder: Path, view: Watcher, again: str, *, anew: int = 0, relay: Relay | None = None
) -> int:
    """Runs what is not done, draws and reports all of it; returns 0 all valid, 1 not all, 130 cut off.

    Args:
        runs: those of the result, in this order.
        folder: the result's folder; it is marked as done when every run is.
        view: receives what happens.
        again: the sentence for whoever cuts it off.
        anew: how often a run during which the machine was busy is made again; then it stays marked.
        relay: of several experiments.

    Raises:
        UsageError: a run was refused for bad input.
    """
    cut_off = False
    try:
        until_quiet(runs, folder / "runs", view, anew, relay)
    except UsageError:
        _report(folder)
        raise
    except KeyboardInterrupt:
        cut_off = True
        view.note(f"cut off; {again}")
    if relay is not None and not cut_off:
        relay.go()
    view.note("drawing")
    result = _report(folder)
    if all((folder / "runs" / run.folder / "done").exists() for run in runs):
        (folder / "done").touch()
    return CUT_OFF if cut_off else exit_code(result)


def exit_code(result: Mapping[str, Any]) -> int:
    """Returns 0 when every run of a result is valid, 1 when one is not, or there is none."""
    return int(merge(run["verdict"] for run in result["runs"]) != "valid")


def _report(folder: Path) -> dict[str, Any]:
    """Writes result.json, figures and report of a result folder; returns the first."""
    result = write_result(folder)
    write_all(folder)
    write_report(folder, drawn=True)
    return result


def bench(
    experiment: Experiment,
    output: Path = RESULTS,
    *,
    force: bool = False,
    resume: bool = False,
    state: LiveState | None = None,
    again: int = 0,
    relay: Relay | None = None,
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
        return earlier, exit_code(read_json(earlier / "result.json"))
    folder = _to_resume(experiment, output) if resume else _begun(experiment, output)
    with LiveView(experiment, folder, state=state) as view:
        said = "`--resume` with the same options goes on"
        code = run_and_report(experiment.runs(), folder, view, said, anew=again, relay=relay)
    return folder, code


def _begun(experiment: Experiment, output: Path) -> Path:
    """Returns a new result's folder, with those of its runs."""
    folder = new_folder(output, experiment.name)
    prepare_runs(experiment, ((run, None) for run in experiment.runs()), folder, experiment.seed)
    return folder


def _to_resume(experiment: Experiment, output: Path) -> Path:
    """Returns the unfinished result, or a finished one whose runs on a busy machine are begun anew.

    Raises:
        UsageError: there is neither.
    """
    if (earlier := find_earlier(experiment, output, finished=False)) is not None:
        return earlier
    earlier = find_earlier(experiment, output, finished=True)
    busy = [] if earlier is None else busy_runs(experiment.runs(), earlier / "runs")
    if earlier is None or not busy:
        raise UsageError(
            "There is no unfinished result of this experiment to resume, and none with a run on a busy machine: leave "
            "--resume out."
        )
    for run in busy:
        begin_anew(earlier / "runs" / run.folder)
    (earlier / "done").unlink()
    return earlier


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
    force, resume = bool(options.get("force")), bool(options.get("resume"))
    if names_no_load(options):
        experiments = [loaded(experiment, output, force=force, resume=resume) for experiment in experiments]
    for experiment in experiments:
        folder, code = bench(experiment, output, force=force, resume=resume, state=state)
        print_comparison(folder)
        sys.stdout.write(f"{folder}\n")
        codes.append(code)
        if code == CUT_OFF:
            break
    return max(codes)


@dataclass(frozen=True)
class Suite(Described):
    """Several experiments under one name, see `measure_in_turn`."""

    name: str
    experiments: tuple[Experiment, ...]

    def to_json(self) -> dict[str, Any]:
        """Returns all parameters."""
        return {"name": self.name, "experiments": [experiment.to_json() for experiment in self.experiments]}


def measure_in_turn(
    suite: Described, experiments: Sequence[Experiment], output: Path, take: Callable[[Path, int, Path], None],
    *, force: bool = False, again: int = 0,
) -> tuple[Path, int]:  # fmt: skip
    """Runs the experiments that are not done yet, and returns the suite's folder and the worst exit code.

    Nothing runs behind an experiment that was cut off.

    Args:
        suite: what is measured.
        experiments: of the suite, in the order in which they run.
        output: parent folder of results.
        take: gets the suite's folder, an experiment's number from 0 on, and its result's folder when it has run.
        force: start a new result even if there is an earlier one.
        again: how often a run on a busy machine is made anew.

    Raises:
        UsageError: the machine lacks something, or the folder cannot be made.
    """
    for experiment in experiments:
        check_machine(experiment, output)
    ensure_jars()
    folder, worst = result_folder(suite, output, force=force), 0
    with Relay() as relay:
        for number, experiment in enumerate(experiments):
            _first_run(experiment, folder)  # before that of the following one, so that folders are named in order
            following = experiments[number + 1 : number + 2]
            relay.behind = next((_first_run(another, folder) for another in following), None)
            begun = find_earlier(experiment, folder, finished=False) is not None
            path, code = bench(experiment, folder, resume=begun, again=again, relay=relay)
            worst = max(worst, code)
            take(folder, number, path)
            if code == CUT_OFF:
                return folder, worst
    (folder / "done").touch()
    return folder, worst


def _first_run(experiment: Experiment, folder: Path) -> Path | None:
    """Makes an experiment's result unless there is one, and returns the first of its runs that is not done."""
    if find_earlier(experiment, folder, finished=True) is not None:
        return None
    result = find_earlier(experiment, folder, finished=False) or _begun(experiment, folder)
    places = (result / "runs" / run.folder for run in experiment.runs())
    return next((place for place in places if not (place / "done").exists()), None)
