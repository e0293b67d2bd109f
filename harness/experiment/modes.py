"""The checks of an experiment in Spark's real-time mode: what is not to be had there is refused in a sentence."""

import re
from importlib.metadata import version

from harness.experiment.description import Experiment
from harness.experiment.parameters import PARAMETERS, REAL_TIME
from impls import catalog
from impls.errors import UsageError
from impls.spark.master import is_local

__all__ = ["check_modes"]

_NEEDED = (4, 3)
_DURATION = re.compile(r"[1-9]\d* (second|minute|hour)s?")
_BATCH = next(option.default for option in PARAMETERS if option.field == "batch")


def check_modes(experiment: Experiment) -> None:
    """Raises UsageError for an experiment that names no mode, or has in real time what real time has not."""
    if not experiment.modes:
        raise UsageError("No mode is named: give micro-batch, real-time, or both.")
    compared = experiment.compared()
    left = [name for name in experiment.mechanisms if name not in {name for name, _ in compared}]
    if left:
        raise UsageError(f"{left[0]} has a store that all workers share, and no real-time mode: leave it out.")
    if all(mode != REAL_TIME for _, mode in compared):
        if experiment.slots is not None or experiment.batch != _BATCH:
            raise UsageError("--slots and --batch belong to --mode real-time.")
        return
    _check_spark()
    _check_place(experiment)
    _check_size(experiment)
    native = [name for name in experiment.mechanisms if catalog.mode_of(name) == REAL_TIME]
    if native and experiment.workload == "nexmark":
        raise UsageError(f"{native[0]} counts keys and has no NEXMark query: leave it out.")


def _check_spark() -> None:
    found = version("pyspark")
    if tuple(int(part) for part in re.findall(r"\d+", found)[:2]) < _NEEDED:
        needed = ".".join(map(str, _NEEDED))
        raise UsageError(f"Real-time mode needs Spark {needed}, and here is {found}: leave out --mode real-time.")


def _check_place(experiment: Experiment) -> None:
    if experiment.cluster is not None or not is_local(experiment.master):
        raise UsageError("Real-time mode runs in one process of Spark: leave out --cluster and --master.")
    if "://" in (experiment.log_dir or ""):
        raise UsageError("Real-time mode writes its changelog to a local folder: name one with --log-dir.")


def _check_size(experiment: Experiment) -> None:
    if not _DURATION.fullmatch(experiment.batch):
        raise UsageError(f"--batch is a duration such as '60 seconds' or '5 minutes', not {experiment.batch!r}.")
    if experiment.slots is not None and experiment.slots < experiment.workers:
        raise UsageError(f"{experiment.slots} slots are too few for {experiment.workers} workers: give as many.")
    if experiment.max_offsets_per_trigger is not None:
        raise UsageError("Real-time mode has no epochs to limit: leave out --max-offsets-per-trigger.")
