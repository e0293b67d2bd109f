"""Event time: how far the input has come. The driver's side, pure.

The watermark of an epoch is the event time below which no more records are expected. It follows from the epochs before
and is part of the epoch's plan, so that in micro-batches an epoch is a deterministic function: every attempt fires the
same timers. Per input partition workers report the highest event time they saw; the watermark is the lowest of these,
less the disorder that the operator allows, and never falls. In real time it also rises within an epoch, when all
workers have applied what was sent to them before it (`impls.protocol.session`).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from impls.errors import UsageError

MAX_TIME = (1 << 62) - 1  # the highest event time: timers behind it, less or more a disorder, fit 64 bits
NO_TIME = -(1 << 62)  # before any event time there is: of a record that has none, of timers that have not run
_DISORDER_MAX = 1 << 60


@dataclass(frozen=True, slots=True)
class EventTime:
    """Where an operator's event time comes from.

    Attributes:
        column: column of the input, 64-bit integers in any unit, never null.
        disorder: how far records of one partition may be behind the highest event time before them; in the same unit.
        partitions: input partitions that have records for the operator; there is no watermark before all of them have
            been seen. With 0 those seen so far count, and a partition that is first read late brings late records.
        of_all: the watermark follows the highest event time of all partitions, as Spark's does, not the lowest of
            theirs.
        clock: plans have an `EpochClock`, for operators that use processing time, or what Spark makes of a watermark.
        as_spark: times are µs, the watermark is whole ms, as the operator's timers are, and a record at it is late.
    """

    column: str
    disorder: int = 0
    partitions: int = 0
    of_all: bool = False
    clock: bool = False
    as_spark: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.disorder <= _DISORDER_MAX or self.partitions < 0:
            raise UsageError(
                "The disorder of an event time must be 0 to 2^60, and the number of its partitions 0 or more."
            )

    @classmethod
    def of_spark(cls, column: str, delay_ms: int = 0) -> "EventTime":
        """Returns an event time, µs, whose watermark goes as that of Spark's `withWatermark`, in whole ms."""
        return cls(column, disorder=delay_ms * 1000, of_all=True, clock=True, as_spark=True)


def whole_ms(watermark_us: int | None) -> int:
    """Returns a watermark as Spark has it: whole ms, and 0 before there is one.

    >>> whole_ms(None), whole_ms(-5), whole_ms(1_999)
    (0, 0, 1)
    """
    return 0 if watermark_us is None else max(0, watermark_us // 1000)


@dataclass(frozen=True)  # without slots, as WrittenPlan
class EpochClock:
    """The times of an epoch that its plan records, so that every attempt has the same.

    Attributes:
        now: processing time, ms since the Unix epoch: when the plan was made; never falls.
        before: that of the epoch before, which is 0 for the first.
        late: watermark of the epoch before, None where there was none.
        waited: bins whose timers that epoch left out, as their state was not where they were routed, or was held.
        sent: up to where the timers of all bins had run behind that epoch: a query that reads the results was told that
            no more come up to it. None where they have not run.
    """

    now: int
    before: int = 0
    late: int | None = None
    waited: tuple[int, ...] = ()
    sent: int | None = None

    def behind_first(self, watermark: int | None) -> "EpochClock":
        """Returns the times for a commit behind the epoch's first: timers have run, and records up to them are late."""
        return replace(self, late=watermark)

    def behind_epoch(self, watermark: int | None) -> "EpochClock":
        """Returns the times for a commit between the epoch, in which all bins have run, and the next one."""
        return replace(self, late=watermark, sent=watermark)

    def to_json(self) -> list[Any]:
        """Returns a JSON-ready list."""
        return [self.now, self.before, self.late, list(self.waited), self.sent]

    @classmethod
    def from_json(cls, data: Sequence[Any]) -> "EpochClock":
        """Reads what `to_json` wrote, now or before it wrote `sent`."""
        return cls(data[0], data[1], data[2], tuple(data[3]), *data[4:])


class EventClock:
    """observe() after every epoch; `watermark` is what the plan of the next epoch says.

    Attributes:
        watermark: that of the epoch to be planned next, None until all partitions have been seen.

    Args:
        event_time: the operator's.
        bins: number of bins.
        linked: the input is another query's results, which come in no order of time: the watermark follows `reach`
            alone.
    """

    def __init__(self, event_time: EventTime, bins: int, *, linked: bool = False):
        self._event_time, self._linked = event_time, linked
        self._seen: dict[int, int] = {}
        self._run = np.full(bins, NO_TIME, np.int64)  # up to where the timers of each bin have run
        self.watermark: int | None = None
        self._held: tuple[int, int | None] = (0, None)  # processing time and watermark of the plan that holds
        self._last: tuple[int, int | None] = self._held  # those of the epoch observed last
        self._waited: tuple[int, ...] = ()

    def at(self, now_ms: int) -> EpochClock | None:
        """Returns the times of the epoch to be planned now, None where the operator asks for none."""
        if not self._event_time.clock:
            return None
        before, late = self._last
        return EpochClock(max(now_ms, before), before, late, self._waited, self.sent)

    @property
    def settled(self) -> bool:
        """Whether all that the input so far gives rise to has been done: without new records nothing changes."""
        return self.watermark is None or bool(self._run.min() >= self.watermark)

    @property
    def sent(self) -> int | None:
        """Up to where the timers of all bins have run, as of the epoch observed last; None before the first one has."""
        until = int(self._run.min())
        return None if until == NO_TIME else until

    @property
    def below(self) -> int | None:
        """The event time below which no result comes any more, as of the epoch observed last; None for none.

        Where a record at the watermark is late, no result comes at `sent` either.
        """
        sent = self.sent
        return None if sent is None else sent + self._event_time.as_spark

    def reach(self, time: int) -> None:
        """Takes in that no result of the other query comes any more that is below an event time."""
        self._rise(self._behind(time))

    def _behind(self, milestone: int) -> int:
        """Returns what another query's milestone lets the watermark rise to."""
        return self._whole(milestone - self._event_time.as_spark - self._event_time.disorder)

    def reached(self, time: int | None) -> bool:
        """Returns whether the watermark has come to a time with the epoch observed last; never to None."""
        if time is None or self.watermark is None or self.watermark < time:
            return False
        before = self._last[1]
        return before is None or before < time

    def will_reach(self, time: int | None, milestones: Iterable[int | None]) -> bool:
        """Returns whether one of other queries' milestones, None for none, lets the watermark rise to a time."""
        return time is not None and any(one is not None and self._behind(one) >= time for one in milestones)

    def hold(self, watermark: int | None, clock: EpochClock | None) -> None:
        """Takes over the watermark and the times of a written plan."""
        self.watermark = watermark
        self._held = (0 if clock is None else clock.now, watermark)

    def risen(self, times: Iterable[tuple[int, int]], milestone: int | None = None) -> int | None:
        """Returns the watermark that follows, while an epoch runs, from what every worker has applied; keeps nothing.

        Args:
            times: (partition, highest event time) of records.
            milestone: an event time below which all of another query's results are among them, None for none.
        """
        known = [self.watermark, self._allowed(self._with(times))]
        known += [] if milestone is None else [self._behind(milestone)]
        return max((one for one in known if one is not None), default=None)

    def observe(self, times: Iterable[tuple[int, int]], waits: Sequence[int], until: int | None = None) -> None:
        """Takes in an epoch whose plan holds.

        Args:
            times: (partition, highest event time) of the records that arrived.
            waits: bins whose timers did not run so far, see `impls.protocol.view.Observation`.
            until: up to where those of the others did, None for the watermark of the plan.
        """
        now, planned = self._held
        until = planned if until is None else until
        if until is not None:
            done = np.full(len(self._run), until, np.int64)
            done[list(waits)] = self._run[list(waits)]
            self._run = done
            self._rise(until)
        self._last, self._waited = (now, until), tuple(waits)
        self._seen = self._with(times)
        self._advance()

    def _advance(self) -> None:
        """Lets the watermark rise to what the input partitions seen allow."""
        if (now := self._allowed(self._seen)) is not None:
            self._rise(now)

    def _with(self, times: Iterable[tuple[int, int]]) -> dict[int, int]:
        """Returns the highest time seen of each input partition, with further ones."""
        seen = dict(self._seen)
        for partition, time in times if not self._linked else ():
            seen[partition] = max(time, seen.get(partition, time))
        return seen

    def _allowed(self, seen: Mapping[int, int]) -> int | None:
        if not seen or len(seen) < self._event_time.partitions:
            return None
        return self._whole((max if self._event_time.of_all else min)(seen.values()) - self._event_time.disorder)

    def _whole(self, time: int) -> int:
        return time - (time % 1000 if self._event_time.as_spark else 0)

    def _rise(self, time: int) -> None:
        self.watermark = time if self.watermark is None else max(time, self.watermark)

    def forget(self, is_gone: Callable[[int], bool]) -> None:
        """Waits no longer for input partitions that are gone, as those of a topic that was made anew."""
        self._seen = {partition: time for partition, time in self._seen.items() if not is_gone(partition)}
        self._advance()

    def to_json(self) -> dict[str, Any]:
        """Returns all that later epochs depend on, ready for JSON."""
        return {
            "watermark": self.watermark,
            "seen": sorted(self._seen.items()),
            "run": self._run.tolist(),
            **({"last": [*self._last, list(self._waited)]} if self._event_time.clock else {}),
        }

    def restore(self, data: dict[str, Any]) -> None:
        """Takes over what `to_json` of another clock gave; raises KeyError or ValueError for anything else."""
        if len(data["run"]) != len(self._run):
            raise ValueError(f"run has {len(data['run'])} entries instead of {len(self._run)}")
        self.watermark, self._run = data["watermark"], np.array(data["run"], np.int64)
        self._seen = dict(data["seen"])
        if self._event_time.clock:
            now, late, waited = data["last"]
            self._last, self._waited = (now, late), tuple(waited)
