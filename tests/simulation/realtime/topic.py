"""Kafka's results topic, simulated."""

from impls.store.records import Results
from realtime.troubles import Troubles

Row = tuple[int, int, int, bytes, bytes]  # worker, epoch, index, key, value


class Topic:
    """Results in the order in which they were sent; a sender may die in the middle."""

    def __init__(self, troubles: Troubles):
        self.rows: list[Row] = []
        self._troubles = troubles

    def send(self, results: Results, *, bins: int, worker: int, generation: int, epoch: int, first: int = 0) -> None:
        for index, (key, value) in enumerate(zip(results.keys, results.payloads, strict=True)):
            self.rows.append((worker, epoch, first + index, key, value))
            self._troubles.point("sending")
