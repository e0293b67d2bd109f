"""Whether a folder can take what an experiment writes."""

import shutil
from pathlib import Path

from generators.nexmark.profile import make_profile
from harness.experiment.description import Experiment
from impls.errors import UsageError

__all__ = ["check_space", "needed_bytes"]

_RECORD_BYTES = 400  # an input record, its result, and its part of logs, cells and LMDB's copied pages
_FIXED_BYTES = 256 << 20  # broker, logs, figures
_KEY_BYTES = {"dense": 24, "hash": 120}  # three copies of a count, or of an entry: state, a moved copy, free pages
_AUCTION_BYTES = 1_500  # an event in the topic, with a person or two; three copies of its entry
_EVENT_BYTES = 700
_COPIES = 3  # of a value: state or changelog, a moved copy, free pages


def needed_bytes(experiment: Experiment) -> int:
    """Returns an upper estimate of the bytes that one run of an experiment has on disk at a time."""
    if experiment.workload == "nexmark":
        open_auctions = make_profile(experiment.profile, experiment.rate).in_flight
        return open_auctions * _AUCTION_BYTES + experiment.records * _EVENT_BYTES + _FIXED_BYTES
    state = experiment.keys * (_KEY_BYTES[experiment.workload] + _COPIES * experiment.value_bytes)
    return state + experiment.records * (_RECORD_BYTES + _COPIES * experiment.value_bytes) + _FIXED_BYTES


def check_space(folder: Path, experiment: Experiment) -> None:
    """Makes the folder; raises UsageError when that fails or when its disk has too little room."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"The folder {folder} cannot be made: {error.strerror}.") from error
    free, needed = shutil.disk_usage(folder).free, needed_bytes(experiment)
    if free < needed:
        raise UsageError(
            f"A run needs about {needed / 2**30:.1f} GiB in {folder}, where {free / 2**30:.1f} GiB are free: "
            "make room, take fewer keys, or name another folder."
        )
