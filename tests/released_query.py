"""A case's query that goes from Spark's own operator to ours, or begins there, and back to Spark's own at a step."""

from typing import Any

from cases import Case
from native_processor import PARTITIONS, Held, Native
from own_processor import BINS, Own

import impls
from impls.mechanisms.native_spark.conf import own_state_store


class Released:
    """Spark's own for the first step, if it begins there; ours, rescaled twice a step; and then Spark's own again.

    Args:
        case: what is run.
        spark: the session.
        own: ours.
        native: Spark's own; its folder is not there yet.
        step: the step before whose records ours is released; behind the last one, when it is stopped.
        first: Spark's own, in another folder, of which ours is made before the records of the second step come.
    """

    name = "released"

    def __init__(self, case: Case, spark: Any, own: Own, native: Native, step: int, first: Native | None = None):
        self._case, self._spark, self._own, self._native, self._step = case, spark, own, native, step
        self._first, self._processor = first, None
        self._now: Own | Native = first or own

    def begin(self, processor: Any) -> None:
        """Starts it, or goes on with another processor; `await_begun` is to follow."""
        self._processor = processor
        self._now.begin(processor)

    def await_begun(self) -> None:
        """Waits until it looks for records."""
        self._now.await_begun()

    def disturb(self, step: int) -> None:
        """Rescales, or has the other take over."""
        if step == 1 and self._now is self._first:
            self._change(self._adopt, self._own)
        if step == self._step:
            self._change(self._release, self._native)
        elif self._now is self._own:
            self._own.disturb(step)

    def _change(self, carry: Any, to: Own | Native) -> None:
        self._now.stop()
        carry()
        self._now = to
        self.begin(self._processor)
        self.await_begun()

    def _adopt(self) -> None:
        assert self._first is not None
        self._own.adopted = True
        impls.adopt(
            self._spark, self._first.folder, self._own.checkpoint, bootstrap=self._own.kafka,
            processor=self._own.of_class(self._processor), pandas=self._case.pandas, bins=BINS,
        )  # fmt: skip

    def _release(self) -> None:
        mode, into = self._case.mode.lower(), self._native.folder
        with own_state_store(self._spark, PARTITIONS):
            frame = self._native.frame(self._processor)
            impls.release(frame, self._own.checkpoint, into, output_mode=mode, partitions=PARTITIONS + 1)

    def finish(self, total: int) -> None:
        """Waits until all that so many records give rise to is done."""
        self._now.finish(total)
        if self._now is self._own:
            self._own.rescale_once_more()

    def outputs(self) -> list[str]:
        """The outputs since the last call."""
        queries = filter(None, (self._first, self._own, self._native))
        return sorted(output for query in queries for output in query.outputs())

    def stop(self) -> None:
        """Ends it; raises what it failed with."""
        self._now.stop()

    def state(self, _held: list[Held]) -> list[Held]:
        """Its state, as Spark's own reader gives it."""
        if self._now is self._own:
            self._release()
        return self._native.state()

    def close(self) -> None:
        """Frees the consumer."""
        self._own.close()
