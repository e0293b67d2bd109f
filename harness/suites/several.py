"""Experiments one after another into the folder of one result, gone on with where they were cut off."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from harness.experiment.description import Experiment
from harness.options import CUT_OFF
from harness.results.place import find_earlier
from harness.suites.bench import bench

__all__ = ["in_turn"]


def in_turn(experiments: Iterable[Experiment], folder: Path, *, again: int = 0) -> Iterator[tuple[Path, int]]:
    """Yields (folder, exit code) of each experiment when it has run; nothing behind one that was cut off.

    `again` is as for `harness.suites.bench.bench`.
    """
    for experiment in experiments:
        begun = find_earlier(experiment, folder, finished=False) is not None
        path, code = bench(experiment, folder, resume=begun, again=again)
        yield path, code
        if code == CUT_OFF:
            return
