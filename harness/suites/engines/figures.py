"""The row of a run: what its users felt, how long a rescale took, and what the engine used."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.files import read_json
from harness.results.entry import RunFiles
from plots.data import StoredRun
from plots.metrics import marks

__all__ = ["cpu_s", "longest_gap_s", "row_of", "timeline_of"]

_ENGINE_ROLES = ("jvm", "worker", "executor")
_MIB = 1 << 20


def longest_gap_s(done_us: NDArray[np.int64], begin_us: int, end_us: int) -> float | None:
    """Returns the longest time without a result from the last one before `begin_us` to the first behind `end_us`.

    >>> longest_gap_s(np.array([0, 9, 10, 40, 50]) * 1_000_000, 12_000_000, 20_000_000)
    30.0
    """
    done = np.unique(done_us)
    if len(done) < 2:
        return None
    low = max(int(np.searchsorted(done, begin_us, "right")) - 1, 0)
    high = min(int(np.searchsorted(done, end_us)), len(done) - 1)
    return float(np.diff(done[low : high + 1]).max(initial=0)) / 1e6


def cpu_s(samples: Sequence[Mapping[str, Any]]) -> float:
    """Returns the processor time in s of a run's processes by samples of memory.jsonl.

    A process that ends takes what it has used along: then the sum falls, and what it falls by is no use.
    """
    own = [int(sample["cpu"]["own"]) for sample in samples if "cpu" in sample]
    return float(np.maximum(np.diff(own), 0).sum()) / 1e6


def row_of(keys: int, entry: dict[str, Any], folder: Path) -> list[dict[str, Any]]:
    """Returns a row for each rescale of a run: names, times in ms and s, None in place of what is not known.

    Args:
        keys: number of keys.
        entry: of the run, in result.json.
        folder: of the run.
    """
    files = RunFiles(folder)
    steady, memory = entry["latency_ms"]["steady"], entry["memory_bytes"]
    records = entry["generator"]["records"]
    about = {
        "keys": keys,
        "engine": entry["mechanism"],
        "round": entry["round"],
        "verdict": ", ".join([entry["verdict"], *marks(entry)]),
        "p50_ms": steady["p50"], "p99_ms": steady["p99"], "p999_ms": steady["p999"],
        "cpu_s_per_million": cpu_s(files.memory) / records * 1e6 if records else None,
        "memory_mib": sum(memory.get(role, 0) for role in _ENGINE_ROLES) / _MIB,
        "lost": entry["lost"], "doubled": entry["doubled"], "repeats": _repeats(folder),
        "reasons": entry["reasons"],
    }  # fmt: skip
    return [{**about, **_rescale(found, files)} for found in entry["migrations"]] or [{**about, **_NO_RESCALE}]


def timeline_of(keys: int, run: StoredRun) -> dict[str, Any]:
    """Returns the highest latency in ms of each 250 ms of a run, and when its rescales were under way, in s."""
    found = run.timeline
    return {
        "keys": keys, "engine": run.mechanism, "round": run.round,
        "at_s": found["at_s"].round(2).tolist(), "max_ms": found["max"].round(1).tolist(),
        "rescales": [[round(begin, 2), round(end, 2)] for begin, end in run.migrations()],
    }  # fmt: skip


_NO_RESCALE = dict.fromkeys(("rescale", "peak_ms", "slow_s", "gap_s", "held_s"))


def _repeats(folder: Path) -> int | None:
    found = read_json(folder / "oracle.json").get("repeats")
    return None if found is None else int(found)


def _rescale(found: Mapping[str, Any], files: RunFiles) -> dict[str, Any]:
    begin_us = files.start_us + round(found["begin_s"] * 1e6)
    end_us = begin_us if found["end_s"] is None else files.start_us + round(found["end_s"] * 1e6)
    return {
        "rescale": found["label"],
        "peak_ms": found["peak_ms"],
        "slow_s": found["slow_s"],
        "gap_s": longest_gap_s(files.cells.done_us, begin_us, end_us),
        "held_s": None if found["end_s"] is None else found["end_s"] - found["begin_s"],
    }
