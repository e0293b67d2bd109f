"""What suites of experiments share: options become experiments, which run one after another into one result."""

from collections.abc import Callable, Sequence
from pathlib import Path

from harness.experiment.description import Experiment
from harness.options import CUT_OFF
from harness.results.place import Described, result_folder
from harness.run.runs import check_machine
from harness.setup.jars import ensure_jars
from harness.suites.bench import in_turn

__all__ = ["measure_in_turn"]


def measure_in_turn(
    suite: Described, experiments: Sequence[Experiment], output: Path, take: Callable[[Path, int, Path], None],
    *, force: bool = False, again: int = 0,
) -> tuple[Path, int]:  # fmt: skip
    """Runs the experiments that are not done yet, and returns the suite's folder and the worst exit code.

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
    for number, (path, code) in enumerate(in_turn(experiments, folder, again=again)):
        worst = max(worst, code)
        take(folder, number, path)
    if worst != CUT_OFF:
        (folder / "done").touch()
    return folder, worst
