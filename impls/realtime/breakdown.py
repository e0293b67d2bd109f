"""How long records in real time spend in each step from Kafka to their results' acknowledgement."""

import time
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from impls.realtime.blobs import Blob

STEPS = ("to_router", "route", "to_worker", "wait", "apply", "commit", "log", "send")
"""From the scheduled time to F, in F, to S, for the commit before, and the phases of the commit."""
_STAMPED = STEPS[1:4]
_PHASES = {"drop": "apply", "pull": "apply", "apply": "apply", "commit": "commit", "log": "log", "send": "send"}


class Breakdown:
    """begin() with the blobs of a commit, done() with its phases; means() at the end of an epoch."""

    def __init__(self) -> None:
        self._sums = dict.fromkeys(STEPS, 0.0)
        self._records = self._now = 0

    def begin(self, blobs: Sequence[Blob]) -> None:
        """Takes the stamps of a commit's blobs."""
        now_us, self._now = time.time_ns() // 1000, 0
        for blob in blobs:
            records = len(blob.table)
            if not records or blob.came_us < 0 or (due_us := _mean(blob.table.column("time"))) is None:
                continue
            stamps = (due_us, blob.came_us, blob.packed_us, blob.read_us, now_us)
            for step, before, after in zip(("to_router", *_STAMPED), stamps, stamps[1:], strict=False):
                self._sums[step] += records * (after - before) / 1e3
            self._now += records
        self._records += self._now

    def done(self, ms: Mapping[str, float]) -> None:
        """Takes the milliseconds of the commit's phases: all of its records wait for each."""
        for phase, step in _PHASES.items():
            self._sums[step] += self._now * ms.get(phase, 0.0)

    def means(self) -> dict[str, float]:
        """Returns milliseconds by step, {} without records."""
        return {step: round(total / self._records, 3) for step, total in self._sums.items()} if self._records else {}


def _mean(times: pa.ChunkedArray) -> float | None:
    """Returns the mean of times, None where one is missing; there is at least one."""
    if times.null_count:
        return None
    # ndarray.mean() does the same and takes 7 µs more for a blob; a sum in int64 overflows from about 5,000 times on
    return float(np.add.reduce(times.to_numpy(), dtype=np.float64)) / len(times)
