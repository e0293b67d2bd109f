"""Results in memory, numbered and with repeats dropped as a reader of the results topic does it."""

from collections import defaultdict

from impls.store.records import Results
from impls.worker.results import Deduplicator, Number

RESULTS: dict[str, list[tuple[int, int, int, bytes, bytes]]] = defaultdict(list)


class MemoryOutput:
    """Takes results as a topic with one partition; equal names share their content."""

    def __init__(self, name: str):
        self.name = name

    def send(
        self, results: Results, *, bins: int, worker: int, generation: int, epoch: int, first: int = 0, **_: int
    ) -> None:
        rows = zip(results.bins.tolist(), results.keys, results.payloads, strict=True)
        RESULTS[self.name] += [(worker, epoch, i, key, value) for i, (_, key, value) in enumerate(rows, first)]

    def read(self) -> list[tuple[int, bytes, int]]:
        """Returns (epoch, key, count) of each result once, in the order of the topic."""
        seen = Deduplicator()
        return [
            (epoch, key, int.from_bytes(value, "little"))
            for worker, epoch, index, key, value in RESULTS[self.name]
            if seen.accept(0, Number(0, worker, 0, epoch, index))
        ]
