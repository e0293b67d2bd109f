"""Where a worker's results go: what a sink is to a worker, and the sinks besides a Kafka topic.

Results are committed with the state and handed to the sink behind the commit, and once more by every further attempt,
always the same ones under the same numbers. So whatever a sink makes of a repeat, no result is lost.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from impls.store.records import Results


class Sink(Protocol):
    """Takes results from workers, in the process of each worker's task."""

    def connect(self) -> None:
        """Prepares this process, as far as that goes: what does not work is seen by `send`."""

    def send(
        self, results: Results, *, bins: int, worker: int, generation: int, epoch: int, first: int, commit: int
    ) -> None:
        """Sends results of a query with `bins` bins; they have arrived when it returns.

        Args:
            results: of one commit of a worker.
            bins: the query's number of bins.
            worker: who has them.
            generation: of the driver that planned the epoch.
            epoch: the epoch.
            first: number of the first of them in the epoch; the others follow on.
            commit: number of the commit in the epoch.

        Raises:
            StateError: they have not arrived.
        """


@dataclass(frozen=True)
class ForeachBatch:
    """Gives the results of each epoch to a function of yours as a Spark DataFrame: `function(frame, epoch)`.

    The function runs in the driver when all workers have committed the epoch and before Spark does, on the thread of
    Structured Streaming's own `foreachBatch`; the query goes on when it returns. Epochs come in order, one at a time.
    `frame` may be used any number of times until then; it lies on the executors and takes no memory of the driver.

    Guarantee: at least once, with the epoch's number. Every epoch that has results is given to the function until it
    has returned and Spark has committed the epoch. So a function that raises fails the query and loses nothing: when
    the query is started again, the same epoch comes again. A crash at any point has the same effect. An epoch that
    comes again has the same number and the same rows, because results are stored with the state and because the
    epoch's input, its plan and the operator are deterministic; the order of rows in the frame may differ. A function
    that writes by the number (overwrite the partition `epoch=...`, MERGE, or a transaction that keeps the last number)
    therefore gets each row exactly once. Numbers grow by 1 for each epoch and go on after a restart on the same
    checkpoint; an epoch without results is left out.

    Columns of `frame`: `key` and `value`, both binary, as they would go to Kafka; or, if the operator states an
    `output_schema`, the columns of that, read from values that are JSON. A value that does not fit raises.

    Real-time mode has no such sink.

    Attributes:
        function: takes (pyspark.sql.DataFrame, int). It is called in the driver and is sent nowhere: on executors this
            object has none.

    Example: results=impls.ForeachBatch(lambda frame, epoch: frame.write.mode("overwrite").parquet(f"out/{epoch}"))
    """

    function: Callable[[Any, int], object]

    def __reduce__(self) -> tuple[Any, ...]:
        return ForeachBatch, (_stays_in_the_driver,)

    def connect(self) -> None:
        """Has nothing to connect."""

    def send(
        self, results: Results, *, bins: int, worker: int, generation: int, epoch: int, first: int, commit: int
    ) -> None:
        """Sends nothing: the worker's task returns results to Spark, see `CollectingSink`."""


def _stays_in_the_driver(_frame: Any, _epoch: int) -> None:
    raise AssertionError("the function of ForeachBatch is called in the driver")


@dataclass
class CollectingSink:
    """Keeps what a worker sends in one epoch, so that its task can return it to Spark; a repeat replaces it.

    Attributes:
        results: what was sent.
    """

    results: Results = field(default_factory=Results.none)

    def connect(self) -> None:
        """Has nothing to connect."""

    def send(
        self, results: Results, *, bins: int, worker: int, generation: int, epoch: int, first: int, commit: int
    ) -> None:
        """Keeps results."""
        self.results = results


class Nowhere:
    """Takes results and drops them: the sink of a query whose state is all that it is for (`results=None`)."""

    def connect(self) -> None:
        """Has nothing to connect."""

    def send(
        self, results: Results, *, bins: int, worker: int, generation: int, epoch: int, first: int, commit: int
    ) -> None:
        """Drops results."""
