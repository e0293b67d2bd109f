"""What a handle offers to let a policy rescale its query."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from impls.autoscale.loop import AutoscaleSettings
from impls.driver.autoscaling import Autoscaling, Source
from impls.driver.checkpoint import Checkpoint
from impls.driver.driver import Driver
from impls.errors import UsageError
from impls.protocol.bins import check_bins

__all__ = ["Autoscaled", "Source"]


class Autoscaled(ABC):
    """A query that can be autoscaled.

    Args:
        driver: of the query.
        checkpoint: for the log of decisions.
        source: returns what tells how far the query's source goes, None where there is no such thing.
        on_event: called with every decision.
    """

    def __init__(
        self,
        driver: Driver,
        checkpoint: Checkpoint,
        source: Callable[[], Source | None] | None,
        on_event: Callable[[str, dict[str, Any]], None],
    ):
        self._scaled, self._logs, self._source, self._tell = driver, checkpoint, source, on_event
        self._switch = threading.Lock()
        self._autoscaling: Autoscaling | None = None

    @abstractmethod
    def rescale(self, workers: int) -> str:
        """Asks for `workers` workers and returns the command's id."""

    def autoscale(
        self,
        policy: str | None,
        *,
        min: int = 1,  # noqa: A002 - the field's words for bounds
        max: int = 1,  # noqa: A002
        interval_s: float = 10.0,
        cooldown_s: float = 30.0,
        warmup: int = 1,
        percentile: float = 0.99,
    ) -> None:
        """Lets a policy rescale the query from now on, in place of one that does; None ends that.

        Every `interval_s` seconds the policy is asked with what was measured in them; while a migration runs, and for
        `warmup` intervals behind it, it is not. Every decision goes to `on_event` as "autoscale", into `status()`, and
        into the checkpoint's `autoscale.log`, a rescale before it is commanded. A query that is started again is
        autoscaled when this is called again; cool-down and past rescales are then those of the log, and what a policy
        measures it measures anew.

        Args:
            policy: see `impls.autoscale`, such as ds2:utilisation=0.8,catch_up_s=30.
            min: fewest workers.
            max: most workers.
            interval_s: seconds; an interval lasts until an epoch has ended in it.
            cooldown_s: seconds from one rescale that a policy has decided to the next, at least.
            warmup: intervals.
            percentile: of the latency that decisions are told with.

        Raises:
            UsageError: an unknown policy, a value out of range, more workers than bins, a source that is not Kafka, or
                a query that has ended.
        """
        settings = None
        if policy is not None:
            settings = AutoscaleSettings(policy, min, max, interval_s, cooldown_s, warmup, percentile)
            check_bins(self._scaled.controller.bins, max)
        with self._switch:
            if self._scaled.ending:
                raise UsageError("The query has ended: start it again before it is autoscaled.")
            self._turn_off()
            if settings is not None:
                self._turn_on(settings)

    def autoscale_status(self) -> dict[str, Any]:
        """Returns what `status()` says of autoscaling: nothing where the query is not autoscaled."""
        running = self._autoscaling
        return {} if running is None else {"autoscale": running.status()}

    def end_autoscaling(self) -> None:
        """Ends autoscaling for good; the query's end calls it while the checkpoint is still open."""
        with self._switch:
            self._turn_off()

    def _turn_on(self, settings: AutoscaleSettings) -> None:
        source = self._source() if self._source is not None else None
        if source is None:
            raise UsageError("A query autoscales by what its Kafka source has, and this one has no such source.")
        log, past = self._logs.log("autoscale")
        self._autoscaling = Autoscaling(
            settings, source, log, past=past, rescale=self.rescale, on_event=self._tell,
            migrating=lambda: self._scaled.controller.migrating,
        )  # fmt: skip
        self._scaled.listeners.append(self._autoscaling.take)

    def _turn_off(self) -> None:
        if self._autoscaling is not None:
            self._scaled.listeners.remove(self._autoscaling.take)
            self._autoscaling.stop()
            self._autoscaling = None
