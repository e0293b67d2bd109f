"""Reads a run's latency cells and epoch log into arrays."""

import base64
import zlib
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.files import read_lines
from harness.measure.hdr import highest_equivalent
from impls.worker.cells import CELL, INTERVAL_US


@dataclass(frozen=True)
class Cells:
    """Columns of equal length: each row is `count` records that do not differ.

    Attributes:
        epoch: the epoch that did them.
        done_us: when their results were acknowledged, wall clock.
        interval: their scheduled time // 250 ms.
        latency_us: quantised latency.
        count: number of records.
        moved: 1 if their bin belongs to the migration under way.
    """

    epoch: NDArray[np.int64]
    done_us: NDArray[np.int64]
    interval: NDArray[np.int64]
    latency_us: NDArray[np.int64]
    count: NDArray[np.int64]
    moved: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.count)

    @property
    def scheduled_us(self) -> NDArray[np.int64]:
        """The earliest time at which they can have been scheduled, exact to 0.1 % of their latency."""
        earliest = self.done_us - highest_equivalent(self.latency_us)
        begin = self.interval * INTERVAL_US
        clipped: NDArray[np.int64] = np.clip(earliest, begin, begin + INTERVAL_US - 1)
        return clipped

    def done_in_time(self) -> "Cells":
        """Returns the same cells, done no later than records that were scheduled at the end of their interval.

        That bounds a time which is known to be too late by as much as an interval is long.
        """
        last = (self.interval + 1) * INTERVAL_US - 1 + highest_equivalent(self.latency_us)
        return replace(self, done_us=np.minimum(self.done_us, last))

    @property
    def records(self) -> int:
        """Number of records."""
        return int(self.count.sum())

    def take(self, rows: NDArray[Any]) -> "Cells":
        """Returns the rows that a mask or an index selects."""
        return Cells(**{field.name: getattr(self, field.name)[rows] for field in fields(self)})


def encode_cells(cells: NDArray[np.void]) -> str:
    """Returns cells as the text that cells.jsonl holds."""
    return base64.b64encode(zlib.compress(cells.tobytes(), 1)).decode()


def _decode(text: str) -> NDArray[np.void]:
    return np.frombuffer(zlib.decompress(base64.b64decode(text)), CELL)


def read_cells(path: Path) -> Cells:
    """Reads cells.jsonl; of several lines of an epoch's worker the last counts.

    Raises:
        ValueError: a line other than a torn last one cannot be read.
    """
    last = {(line["epoch"], line["worker"]): line for line in read_lines(path)}
    lines = [last[key] for key in sorted(last)]
    try:
        parts = [_decode(line["cells"]) for line in lines]
    except (ValueError, zlib.error) as error:
        raise ValueError(f"{path} holds cells that cannot be decoded: {error}.") from error
    every = np.concatenate(parts) if parts else np.empty(0, CELL)
    sizes = [len(part) for part in parts]
    return Cells(
        epoch=np.repeat(np.array([line["epoch"] for line in lines], np.int64), sizes),
        done_us=np.repeat(np.array([line["done_us"] for line in lines], np.int64), sizes),
        interval=every["interval"].astype(np.int64),
        latency_us=every["latency_us"].astype(np.int64),
        count=every["count"].astype(np.int64),
        moved=every["moved"].astype(bool),
    )


def read_epochs(path: Path) -> list[dict[str, Any]]:
    """Reads epochs.jsonl in order of epoch; of several lines of an epoch the last counts."""
    last = {line["epoch"]: line for line in read_lines(path)}
    return [last[epoch] for epoch in sorted(last)]
