"""Kafka's results topic, simulated."""

from impls.store.records import Results
from realtime.troubles import Troubles

Row = tuple[int, int, int, int, bytes, bytes]  # worker, epoch, index, commit, key, value


class Topic:
    """Results in the order in which they were sent; a sender may die in the middle."""

    def __init__(self, troubles: Troubles):
        self.rows: list[Row] = []
        self._troubles = troubles

    def send(self, results: Results, *, worker: int, epoch: int, first: int, commit: int, **_: int) -> None:
        for index, (key, value) in enumerate(zip(results.keys, results.payloads, strict=True), first):
            self.rows.append((worker, epoch, index, commit, key, value))
            self._troubles.point("sending")
