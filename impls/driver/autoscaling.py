"""A running query that is autoscaled: a thread measures intervals, asks the policy and rescales."""

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import Any, Protocol

from impls.autoscale import Rescaled
from impls.autoscale.intervals import Gathering, Look, PartitionOffsets, Sample
from impls.autoscale.loop import Autoscaler, AutoscaleSettings, Decided
from impls.closing import ended_on_error
from impls.driver.checkpoint import Checkpoint
from impls.driver.driver import Driver
from impls.driver.epochs import EpochRecord
from impls.driver.history import caused_by
from impls.driver.journal import Entry, Journal
from impls.driver.observed import OnEvent
from impls.errors import StateError, UsageError
from impls.protocol.arrays import check_bins

_POLL_S = 0.05
_END_DEADLINE_S = 30.0
_LOG = logging.getLogger(__package__)
_LOG_BYTES = 4 << 20
_KEPT_DECISIONS, _KEPT_RESCALES = 1000, 100


class Source(Protocol):
    """What tells how far the source goes, and how far it was read; `impls.driver.arrivals.Arrivals` is one.

    Attributes:
        consumed: returns the offsets behind what an epoch, and all before it, have read.
        behind: epochs that have to end behind one until `consumed` knows of it.
    """

    @property
    def consumed(self) -> Callable[[int], PartitionOffsets]:
        """See above."""

    behind: int

    def look(self, places: Any) -> Look:
        """Returns how far partitions of the source go now; raises StateError when that cannot be told."""


class Autoscaling:
    """The driver's thread calls take() with every epoch, until stop().

    A decision is made durable before its command is, so that a driver that starts again keeps the cool-down whatever it
    was doing when it died. The log keeps the last 1000 decisions and 100 rescales at least.

    Args:
        settings: bounds, times and policy.
        source: of the query.
        log: of decisions, which this object closes.
        migrating: returns whether a migration is under way; then nothing is decided.
        rescale: gives the command and returns its id; raises UsageError when the query has ended.
        on_event: called with every decision; what it raises is logged.
        moves: see `impls.autoscale.loop.Autoscaler`.
    """

    def __init__(
        self,
        settings: AutoscaleSettings,
        source: Source,
        log: Journal,
        *,
        past: list[Entry],
        migrating: Callable[[], bool],
        rescale: Callable[[int], str],
        on_event: OnEvent,
        moves: Callable[[int], bool] = lambda _workers: True,
    ):
        self._settings, self._source, self._log = settings, source, log
        self._migrating, self._rescale, self._on_event = migrating, rescale, on_event
        self._entries = list(past)
        self._loop = Autoscaler(settings, past_of(past), moves)
        self._gathering, self._lock = Gathering(settings.percentile), threading.Lock()
        self._ended = threading.Event()
        self._records: deque[tuple[EpochRecord, float]] = deque()  # each with its end
        self._wall_s = time.time_ns() / 1e9 - time.monotonic()  # durations follow no clock that is set
        self._last: Entry | None = None
        self._thread = threading.Thread(target=self._run, name="autoscale", daemon=True)
        self._thread.start()

    def take(self, record: EpochRecord) -> None:
        """Takes in a finished epoch."""
        self._records.append((record, self._wall_s + time.monotonic()))
        if len(self._records) > self._source.behind:
            self._add(*self._records.popleft())

    def _add(self, record: EpochRecord, end_s: float) -> None:
        consumed = self._source.consumed(record.written.epoch)
        sample = Sample.of(record.written, record.reports, record.cells.values(), consumed, end_s=end_s)
        if consumed:  # else it is not known yet how far the source was read
            with self._lock:
                self._gathering.add(sample)

    def stop(self) -> None:
        """Ends the thread and closes the log; nothing is decided behind it."""
        self._ended.set()
        with closing(self._log):
            if threading.current_thread() is not self._thread:
                self._thread.join(_END_DEADLINE_S)

    def status(self) -> dict[str, Any]:
        """Returns policy, bounds, and the last decision with its numbers."""
        settings = self._settings
        return {"policy": settings.policy, "min": settings.least, "max": settings.most, "last": self._last}

    def _run(self) -> None:
        due = time.monotonic()
        while not self._ended.wait(_POLL_S):
            try:
                if self._migrating():
                    with self._lock:
                        self._gathering.give_up()
                    continue
                due = self._turn(due)
            except UsageError as error:  # the query has ended
                _LOG.info("Autoscaling by %s ends: %s", self._settings.policy, error)
                return
            except Exception as error:  # a broker, a disk, a policy: nothing of it may end autoscaling for good
                words = str(error) if isinstance(error, StateError) else f"{type(error).__name__}: {error}"
                _LOG.warning("Autoscaling by %s has to wait: %s", self._settings.policy, words)
                self._tell({"policy": self._settings.policy, "error": words})
                due = time.monotonic() + self._settings.interval_s

    def _tell(self, entry: Entry) -> None:
        """Tells the user's function, whose errors are its own."""
        try:
            self._on_event("autoscale", entry)
        except Exception as error:
            _LOG.warning("on_event has failed for a decision: %s: %s", type(error).__name__, error)

    def _turn(self, due: float) -> float:
        """Begins or ends an interval where one can be, and returns when the one under way is to end."""
        with self._lock:
            first, last = self._gathering.first, self._gathering.last
        if first is not None:
            look = self._source.look(first.consumed)
            with self._lock:
                if self._gathering.first is not None:  # no migration has begun meanwhile
                    self._gathering.begin(self._gathering.first, look)
            return time.monotonic() + self._settings.interval_s
        if last is None or time.monotonic() < due:
            return due
        look = self._source.look(last.consumed)
        with self._lock:
            if self._gathering.last is None:
                return due
            if self._gathering.disturbed:
                self._loop.moved()
            interval = self._gathering.close(last, look)
            self._gathering.disturbed = False
        self._carry_out(self._loop.decide(interval))
        return due + self._settings.interval_s * (1 + (time.monotonic() - due) // self._settings.interval_s)

    def _carry_out(self, decided: Decided) -> None:
        entry = {"policy": self._settings.policy, **decided.to_json()}
        self._append(entry)
        if decided.wanted is not None:
            _LOG.info("The policy %s asks for %s workers: %s", self._settings.policy, decided.wanted, decided.reason)
            with caused_by("policy", f"{self._settings.policy}: {decided.reason}"):
                entry = {**entry, "command": self._rescale(decided.wanted)}
        self._last = entry
        self._tell(entry)

    def _append(self, entry: Entry) -> None:
        self._log.append(entry)
        self._entries.append(entry)
        if self._log.size > _LOG_BYTES:
            rescales = [one for one in self._entries[:-_KEPT_DECISIONS] if one["wanted"] is not None]
            self._entries = [*rescales[-_KEPT_RESCALES:], *self._entries[-_KEPT_DECISIONS:]]
            self._log.rewrite(self._entries, base=-1)


def past_of(entries: Sequence[Mapping[str, Any]]) -> list[Rescaled]:
    """Returns the rescales that a log of decisions holds, oldest first."""
    fields = ("at_s", "workers", "wanted", "reason", "numbers")
    decided = (Decided(**{name: entry[name] for name in fields}) for entry in entries)
    return [one for one in (found.rescaled() for found in decided) if one is not None]


class Autoscaled(ABC):
    """A query that can be autoscaled.

    Args:
        driver: of the query.
        checkpoint: for the log of decisions.
        source: returns what tells how far the query's source goes, None where there is no such thing.
        on_event: called with every decision.
    """

    def __init__(
        self, driver: Driver, checkpoint: Checkpoint, source: Callable[[], Source | None] | None, on_event: OnEvent
    ):
        self._scaled, self._logs, self._source, self._tell = driver, checkpoint, source, on_event
        self._switch = threading.Lock()
        self._autoscaling: Autoscaling | None = None

    @abstractmethod
    def rescale(self, workers: int) -> str:
        """Asks for `workers` workers and returns the command's id."""

    @abstractmethod
    def moves(self, workers: int) -> bool:
        """Returns whether a rescale to `workers` workers would move a bin."""

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
            UsageError: an unknown policy, a value out of range, more workers than bins or than the session can run, a
                source that is not Kafka, or a query that has ended.
        """
        settings = None
        if policy is not None:
            settings = AutoscaleSettings(policy, min, max, interval_s, cooldown_s, warmup, percentile)
            check_bins(self._scaled.controller.bins, max)
        with self._switch:
            if self._scaled.ending:
                raise UsageError("The query has ended: start it again before it is autoscaled.")
            most = 0 if settings is None else max
            with self._scaled.allowing(most):  # where they are not allowed, the policy before goes on
                self._scaled.autoscaled_to = most
            with ended_on_error(self._want_none):
                self._turn_off()  # it waits for a rescale under way, which may wait for `allowing`
                if settings is not None:
                    self._turn_on(settings)

    def autoscale_status(self) -> dict[str, Any]:
        """Returns what `status()` says of autoscaling: nothing where the query is not autoscaled."""
        running = self._autoscaling
        return {} if running is None else {"autoscale": running.status()}

    def end_autoscaling(self) -> None:
        """Ends autoscaling for good; the query's end calls it while the checkpoint is still open."""
        with self._switch:
            self._want_none()
            self._turn_off()

    def _want_none(self) -> None:
        self._scaled.autoscaled_to = 0

    def _turn_on(self, settings: AutoscaleSettings) -> None:
        source = self._source() if self._source is not None else None
        if source is None:
            raise UsageError("A query autoscales by what its Kafka source has, and this one has no such source.")
        log, past = self._logs.log("autoscale")
        self._autoscaling = Autoscaling(
            settings, source, log, past=past, rescale=self.rescale, on_event=self._tell, moves=self.moves,
            migrating=self._migrating,
        )  # fmt: skip
        self._scaled.listeners.append(self._autoscaling.take)

    def _migrating(self) -> bool:
        return self._scaled.migrating

    def _turn_off(self) -> None:
        running, self._autoscaling = self._autoscaling, None
        if running is not None:
            self._scaled.listeners.remove(running.take)
            running.stop()
