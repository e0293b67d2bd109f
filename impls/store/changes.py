"""What is written to bins, as the changelog keeps it."""

import numpy as np
from numpy.typing import NDArray

__all__ = ["Changes"]


class Changes:
    """What an epoch writes, in stored form and order: the content of its changelog frame.

    Attributes:
        names, values: of keyed entries; a value of None deletes.
        codes, counts: lists of int64 arrays, dense slots and their counts.
    """

    def __init__(self) -> None:
        self.names: list[bytes] = []
        self.values: list[bytes | None] = []
        self.codes: list[NDArray[np.int64]] = []
        self.counts: list[NDArray[np.int64]] = []
