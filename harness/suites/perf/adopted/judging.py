"""Whether the aggregates of an adopted query are right, from both its topics."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from harness.oracle.columns import OracleError, Placed
from harness.oracle.read import read_columns, read_records
from impls.errors import StateError

_DEADLINE_S = 300.0


@dataclass(frozen=True, slots=True)
class Counts(Placed):
    """Results: a key and how many records it has had."""

    key: NDArray[np.int64]
    n: NDArray[np.int64]


def check_topics(bootstrap: str, load: str, results: str, keys: int) -> int:
    """Checks all results of a query whose state was one record per key, and returns how many there are.

    Raises:
        StateError: a count is wrong, is there twice or is missing, or a topic cannot be read.
    """
    try:
        records = read_records(bootstrap, load, deadline_s=_DEADLINE_S)
        found = read_columns(Counts, bootstrap, results, _DEADLINE_S, _columns)
    except OracleError as error:
        raise StateError(str(error)) from error
    check(records.key, found, keys)
    return len(found)


def _columns(messages: list[Any]) -> dict[str, NDArray[Any]]:
    rows = [orjson.loads(message.value) for message in messages]
    return {name: np.array([row[field] for row in rows], np.int64) for name, field in (("key", "item"), ("n", "n"))}


def check(records: NDArray[np.int64], found: Counts, keys: int) -> None:
    """Raises StateError unless the counts of each key ascend from result to result, and end at all of its records.

    Args:
        records: keys of the records since the adoption, shape (N,).
        found: the results since then.
        keys: keys are 0 to keys - 1, each with one record before the adoption.
    """
    order = np.lexsort((np.arange(len(found)), found.key))
    key, n = found.key[order], found.n[order]
    again = (key[1:] == key[:-1]) & (n[1:] <= n[:-1])
    if again.any():
        at = int(np.flatnonzero(again)[0])
        raise StateError(f"Key {key[at]} had count {n[at]} and then {n[at + 1]}.")
    wanted = np.bincount(records, minlength=keys) + 1
    last = np.ones(keys, np.int64)
    last[key] = n  # the last one of each key holds
    if (wrong := np.flatnonzero(last != wanted)).size:
        first = int(wrong[0])
        raise StateError(f"{wrong.size} keys have a wrong count: key {first} has {last[first]}, not {wanted[first]}.")
