"""Where the time of a record goes in real-time mode, step by step."""

import time
from collections.abc import Mapping, Sequence

import pyarrow as pa

from impls.realtime.blobs import Blob

STEPS = ("to_router", "route", "to_worker", "wait", "apply", "commit", "log", "send")
"""From the scheduled time to F, in F, to S, for the turn before, and the phases of the turn."""
_STAMPED = STEPS[1:4]
_PHASES = {"drop": "apply", "pull": "apply", "apply": "apply", "commit": "commit", "log": "log"}


class Breakdown:
    """begin() with the blobs of a turn, done() with its phases, sent() when its results have arrived.

    means() is for the end of a tick.
    """

    def __init__(self) -> None:
        self._sums = dict.fromkeys(STEPS, 0.0)
        self._records = self._turn = self._posted = 0

    def begin(self, blobs: Sequence[Blob]) -> None:
        """Takes the stamps of a turn's blobs."""
        now_us, self._turn = time.time_ns() // 1000, 0
        for blob in blobs:
            records = len(blob.table)
            if not records or blob.came_us < 0 or (due_us := _mean(blob.table.column("time"))) is None:
                continue
            stamps = (due_us, blob.came_us, blob.packed_us, blob.read_us, now_us)
            for step, before, after in zip(("to_router", *_STAMPED), stamps, stamps[1:], strict=False):
                self._sums[step] += records * (after - before) / 1e3
            self._turn += records
        self._records += self._turn

    def done(self, ms: Mapping[str, float]) -> None:
        """Takes the milliseconds of the turn's phases: all of its records wait for each. `send` is the last turn's."""
        self.sent(ms)
        for phase, step in _PHASES.items():
            self._sums[step] += self._turn * ms.get(phase, 0.0)
        self._posted = self._turn

    def sent(self, ms: Mapping[str, float]) -> None:
        """Takes how long the results of the last turn were on their way."""
        self._sums["send"] += self._posted * ms.get("send", 0.0)

    def means(self) -> dict[str, float]:
        """Returns milliseconds by step, {} without records."""
        return {step: round(total / self._records, 3) for step, total in self._sums.items()} if self._records else {}


def _mean(times: pa.ChunkedArray) -> float | None:
    return None if times.null_count else float(times.to_numpy().mean())
