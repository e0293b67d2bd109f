"""Bins in arrays: how many there may be, and assignments as arrays of workers."""

import base64
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from impls.errors import UsageError


def text_of(array: NDArray[Any], kind: str) -> str:
    """Returns an array as text, its numbers of a kind as in "<i4"."""
    return base64.b64encode(array.astype(kind).tobytes()).decode()


def array_of(text: str, kind: str) -> NDArray[Any]:
    """Reads what `text_of` wrote; it cannot be written to."""
    return np.frombuffer(base64.b64decode(text), kind)


def arrays_to_json(of: object, kinds: Mapping[str, str]) -> dict[str, str]:
    """Returns attributes of an object by name, without a leading underscore."""
    return {name.lstrip("_"): text_of(getattr(of, name), kind) for name, kind in kinds.items()}


def arrays_from_json(data: Mapping[str, str], kinds: Mapping[str, str], bins: int) -> dict[str, NDArray[Any]]:
    """Reads what `arrays_to_json` wrote; raises ValueError for an array, `moving` excepted, of another length."""
    arrays = {name: array_of(data[name.lstrip("_")], kind) for name, kind in kinds.items()}
    for name, array in arrays.items():
        if name != "moving" and array.shape != (bins,):
            raise ValueError(f"{name} has {array.size} entries instead of {bins}")
    return arrays


MAX_BINS = 1 << 14
_WORKER_MAX = 65_534  # the journals have 16 bits for a worker's number, the highest of which stands for none


def check_bins(bins: int, workers: int) -> int:
    """Returns log2(bins); raises UsageError when bins is not a power of two in 2..16384 or below the workers."""
    if bins < 2 or bins > MAX_BINS or bins & (bins - 1):
        raise UsageError(f"The number of bins must be a power of two from 2 to {MAX_BINS}, not {bins}.")
    _check_workers(bins, workers)
    return bins.bit_length() - 1


def check_goal(goal: Any, bins: int) -> NDArray[np.int32]:
    """Returns an assignment as int32, shape (bins,); raises UsageError unless it has a worker for each bin.

    A worker is a number from 0 to 65534 that is less than the number of bins.
    """
    given = np.asarray(goal)
    if given.shape != (bins,) or given.dtype.kind not in "iu" or given.min() < 0 or given.max() > _WORKER_MAX:
        raise UsageError(f"A goal names a worker, a number from 0 to {_WORKER_MAX}, for each of the {bins} bins.")
    _check_workers(bins, 1 + int(given.max()))
    return given.astype(np.int32)


def _check_workers(bins: int, workers: int) -> None:
    if bins < workers:
        raise UsageError(f"{bins} bins are too few for {workers} workers: give at least one bin per worker.")
