"""What suites of experiments share: they run one after another into one result."""

from collections.abc import Callable, Sequence
from pathlib import Path

from harness.experiment.description import Experiment
from harness.options import CUT_OFF
from harness.results.place import Described, find_earlier, result_folder
from harness.run.runs import check_machine
from harness.setup.jars import ensure_jars
from harness.suites.bench import bench


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
    for number, experiment in enumerate(experiments):
        begun = find_earlier(experiment, folder, finished=False) is not None
        path, code = bench(experiment, folder, resume=begun, again=again)
        worst = max(worst, code)
        take(folder, number, path)
        if code == CUT_OFF:
            return folder, worst
    (folder / "done").touch()
    return folder, worst
