"""Kafka's results topic, simulated."""

from collections import deque

from impls.store.records import Results
from realtime.troubles import Troubles

Row = tuple[int, int, int, bytes, bytes]  # worker, epoch, index, key, value


class Topic:
    """Results in the order in which they arrived; a sender may die while some of them are on their way."""

    def __init__(self, troubles: Troubles):
        self.rows: list[Row] = []
        self._posted: dict[int, deque[Row]] = {}
        self._troubles = troubles

    def post(self, results: Results, *, bins: int, worker: int, generation: int, epoch: int, first: int = 0) -> None:
        way = self._posted.setdefault(worker, deque())
        for index, (key, value) in enumerate(zip(results.keys, results.payloads, strict=True)):
            way.append((worker, epoch, first + index, key, value))
            self._troubles.point("sending")

    def settle(self) -> None:
        """The rest of what the worker that runs now has sent arrives."""
        way = self._posted.get(self._troubles.task, deque())  # type: ignore[arg-type]
        while way:
            self._troubles.point("sending")
            self.rows.append(way.popleft())

    def arrive(self, worker: int, most: int) -> None:
        """Some of what a worker has sent arrives."""
        way = self._posted.get(worker, deque())
        for _ in range(min(most, len(way))):
            self.rows.append(way.popleft())

    def lose(self, worker: int) -> None:
        """What is on its way from a worker does not arrive: it is dead."""
        self._posted.pop(worker, None)
