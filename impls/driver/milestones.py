"""What the drivers of two linked queries tell each other: how far in event time the results of the first have come.

Results do not come in the order of their times: those of two workers lie in one partition of the topic, and a bin that
moves runs its timers later than others. The first query's driver knows up to where all timers have run, and then the
broker says where the results end. So a *milestone* is an event time and offsets before which all results below it lie.
The second query's watermark rises to it once all before these offsets was read. Both queries are in one process; where
the first one starts again, it gives a milestone anew.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence

from impls.autoscale.intervals import PartitionOffsets
from impls.driver.arrivals import Consumed
from impls.driver.driver import Driver
from impls.driver.epochs import EpochRecord
from impls.errors import StateError
from impls.protocol.coordinator import Awaited, Rise
from impls.protocol.eventtime import EventClock

_MILESTONES_MOST = 1024  # that wait; every second one is given up then
_LOG = logging.getLogger(__package__)


class Milestones:
    """How far a query has come for the one that reads its results: add() by the first, reached() by the other one.

    From any threads.

    Attributes:
        wake: begins an epoch of the query that reads, set by that.
        coming: the first query runs an epoch, which may bring a milestone.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._milestones: deque[tuple[int, PartitionOffsets]] = deque()
        self._reached: int | None = None
        self.wake: Callable[[], None] = lambda: None
        self.coming = False

    def expect(self, _epoch: int) -> None:
        """Takes in that the first query begins an epoch."""
        self.coming = True

    def add(self, time: int, ends: PartitionOffsets) -> None:
        """Adds the milestone that all results below an event time lie before some offsets."""
        with self._lock:
            self._milestones.append((time, dict(ends)))
            if len(self._milestones) > _MILESTONES_MOST:
                self._milestones = deque(list(self._milestones)[::-2][::-1])  # the last one stays: none may follow
        self.wake()

    def reached(self, read: PartitionOffsets) -> int | None:
        """Returns the event time below which all results were read, None as long as there is no such time.

        Args:
            read: by topic and partition, the offset behind what was read; 0 where there is none.
        """
        with self._lock:
            while self._milestones and all(read.get(place, 0) >= at for place, at in self._milestones[0][1].items()):
                self._reached, _ = self._milestones.popleft()
            return self._reached

    @property
    def waiting(self) -> int | None:
        """The event time of the last milestone before which results are still to be read, None for none."""
        return None if (last := self._last()) is None else last[0]

    @property
    def ends(self) -> PartitionOffsets:
        """The offsets of that milestone, {} for none."""
        return {} if (last := self._last()) is None else last[1]

    def _last(self) -> tuple[int, PartitionOffsets] | None:
        with self._lock:
            return self._milestones[-1] if self._milestones else None


def adding(
    milestones: Milestones, clock: EventClock, ends: Callable[[], PartitionOffsets]
) -> Callable[[EpochRecord], None]:
    """Returns what adds milestones behind the epochs of the query that sends, for `Driver.listeners`.

    A broker that does not say where the results end is asked again behind the next epoch.

    Args:
        milestones: for the query that reads.
        clock: of the query that sends.
        ends: asks where the results end; raises StateError where that cannot be told.
    """
    last: int | None = None

    def add(_record: EpochRecord) -> None:
        nonlocal last
        below = clock.below
        try:
            if below is not None and (last is None or below > last):
                milestones.add(below, ends())
                last = below
        except StateError as error:
            _LOG.warning("The next query's watermark waits: %s", error)
        finally:
            milestones.coming = False

    return add


def sending(driver: Driver, ends: Callable[[], PartitionOffsets]) -> Milestones:
    """Returns the milestones that the driver of a query with event time adds from now on, for one that reads it.

    Args:
        driver: of the query that sends.
        ends: see `adding`.
    """
    milestones, clock = Milestones(), driver.controller.clock
    assert clock is not None, "the query has event time"
    driver.before_plan.append(milestones.expect)
    driver.listeners.append(adding(milestones, clock, ends))
    return milestones


def follow(
    milestones: Sequence[Milestones],
    driver: Driver,
    read: Consumed,
    input_partitions: Callable[[str, int], Iterable[int]],
) -> None:
    """Lets the watermark of a driver's query follow the queries whose results are its input: the one that is behind.

    Args:
        milestones: of the queries that send.
        driver: of the query that reads.
        read: tells how far the query has read.
        input_partitions: returns the partitions of the input that are a topic's partition.
    """

    def reached(epoch: int, since: Mapping[int, int]) -> int | None:
        until = read(epoch, since) if any(one.waiting is not None for one in milestones) else {}
        times = [one.reached(until) for one in milestones]
        return None if None in times else min(time for time in times if time is not None)

    def look(epoch: int) -> None:
        clock = driver.controller.clock
        if clock is not None and (time := reached(epoch - 1, {})) is not None:
            with driver.locked():
                clock.reach(time)

    def awaited(due: int | None) -> dict[int, int]:
        clock = driver.controller.clock
        if clock is None or not clock.will_reach(due, [one.waiting for one in milestones]):
            return {}
        ends = [place for one in milestones for place in one.ends.items()]
        return {number: at for (topic, part), at in ends for number in input_partitions(topic, part)}

    driver.before_plan.append(look)
    driver.awaited = awaited
    driver.milestone = lambda since: reached(driver.last_epoch, since)
    for one in milestones:
        driver.waiting.append(lambda one=one: one.waiting)  # type: ignore[misc]
        driver.coming.append(lambda one=one: one.coming)  # type: ignore[misc]
        one.wake = driver.on_command


def awaiting(driver: Driver) -> Awaited:
    """Returns what says for which results the timers of a driver's query wait, also when it follows none yet."""
    return lambda due: driver.awaited(due)  # noqa: PLW0108 - `follow` sets it later


def rising(driver: Driver) -> Rise:
    """Returns what lets the watermark of a driver's query rise within an epoch."""

    def rise(times: Sequence[tuple[int, int]], read: Mapping[int, int]) -> int | None:
        milestone = driver.milestone(read)
        with driver.locked() as known:
            return None if known.clock is None else known.clock.risen(times, milestone)

    return rise
