"""A case's query that runs here until a step, and from then on as Spark's own on what is released of it."""

from typing import Any

from cases import Case
from native_processor import PARTITIONS, Held, Native
from own_processor import Own

import impls
from impls.mechanisms.native_spark.conf import own_state_store


class Released:
    """Ours, whose checkpoint is released before the records of a step come, and then Spark's own.

    Args:
        case: what is run.
        spark: the session.
        own: ours.
        native: Spark's own; its folder is not there yet.
        step: the step.
    """

    name = "released"

    def __init__(self, case: Case, spark: Any, own: Own, native: Native, step: int):
        self._case, self._spark, self._own, self._native, self._step = case, spark, own, native, step
        self._processor: Any = None
        self._now: Own | Native = own

    def begin(self, processor: Any) -> None:
        """Starts it, or goes on with another processor; `await_begun` is to follow."""
        self._processor = processor
        self._now.begin(processor)

    def await_begun(self) -> None:
        """Waits until it looks for records."""
        self._now.await_begun()

    def disturb(self, step: int) -> None:
        """Rescales, or stops and releases it."""
        if step == self._step:
            self._own.stop()
            self._release()
            self._now = self._native
            self.begin(self._processor)
            self.await_begun()
        elif self._now is self._own:
            self._own.disturb(step)

    def _release(self) -> None:
        mode, into = self._case.mode.lower(), self._native.folder
        with own_state_store(self._spark, PARTITIONS):
            frame = self._native.frame(self._processor)
            impls.release(frame, self._own.checkpoint, into, output_mode=mode, partitions=PARTITIONS + 1)

    def finish(self, total: int) -> None:
        """Waits until all that so many records give rise to is done."""
        self._now.finish(total)

    def outputs(self) -> list[str]:
        """The outputs since the last call."""
        return sorted([*self._own.outputs(), *self._native.outputs()])

    def stop(self) -> None:
        """Ends it; raises what it failed with."""
        self._now.stop()

    def state(self, _held: list[Held]) -> list[Held]:
        """Its state, as Spark's own reader gives it."""
        return self._native.state()

    def close(self) -> None:
        """Frees the consumer."""
        self._own.close()
