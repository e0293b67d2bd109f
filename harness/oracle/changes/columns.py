"""What the oracle of changes reads: results that list their records, the code of each version, and where it held."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from harness.oracle.columns import Columns

__all__ = ["ENTRY", "HEADER", "Code", "Listed", "Plans", "leaves_out"]

HEADER = "<Bqq"  # of `struct`: shape of the state, the key's records so far, those since the state has the shape
ENTRY = np.dtype([("partition", "<u4"), ("offset", "<u8"), ("label", "<u1")])


@dataclass(frozen=True, slots=True)
class Code:
    """What a version of the pipeline does to a record.

    Attributes:
        shape: of the operator's state, 1 or 2.
        label: what the map step writes into each record.
        sieve: a filter leaves out the records of odd offsets.
    """

    shape: int = 1
    label: int = 1
    sieve: bool = False


def leaves_out(code: Code, offset: int) -> bool:
    """Returns whether a version's filter leaves out the record of an offset."""
    return code.sieve and offset % 2 == 1


@dataclass(frozen=True, slots=True)
class Listed(Columns):
    """Raw results, repeats included, in (partition, offset) order; `value` is a HEADER and an ENTRY for each record."""

    partition: NDArray[np.int32]
    offset: NDArray[np.int64]
    key: NDArray[np.int64]
    value: NDArray[np.object_]
    worker: NDArray[np.int32]
    generation: NDArray[np.int64]
    epoch: NDArray[np.int64]
    index: NDArray[np.int64]


@dataclass(frozen=True)
class Plans:
    """Which version each bin ran under.

    Attributes:
        codes: what each version does, by its number.
        required: epoch (in real time tick) -> version of each bin, shape (bins,); empty where it is not known.
        ids: id of the change that each version from 1 on came with.
        ticks: epochs are ticks of real time: what a worker does between two ticks has the number of the later one, and
            runs under the versions of the earlier one.
    """

    codes: Sequence[Code]
    required: Mapping[int, NDArray[np.int64]] = field(default_factory=dict)
    ids: Sequence[str] = ()
    ticks: bool = False

    def candidates(self, epochs: NDArray[np.int64], bins: NDArray[np.int64]) -> list[list[int]]:
        """Returns the versions under which each result of (epoch, bin) can have run, the earlier one first.

        Where no plan is known these are all.
        """
        own = self.versions(epochs, bins)
        before = self.versions(epochs - 1, bins) if self.ticks else own
        every = list(range(len(self.codes)))
        return [
            every if v < 0 else sorted({u if u >= 0 else v, v})
            for u, v in zip(before.tolist(), own.tolist(), strict=True)
        ]

    def versions(self, epochs: NDArray[np.int64], bins: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns the version of each (epoch, bin), -1 where it is not known."""
        out = np.full(len(epochs), -1, np.int64)
        for epoch in np.unique(epochs).tolist():
            if epoch in self.required:
                rows = epochs == epoch
                out[rows] = self.required[epoch][bins[rows]]
        return out

    @property
    def eras(self) -> list[int]:
        """How often state had changed its shape, by version."""
        changed = [a.shape != b.shape for a, b in zip(self.codes, self.codes[1:], strict=False)]
        return [0, *(int(times) for times in np.cumsum(changed, dtype=np.int64))]
