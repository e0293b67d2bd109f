"""Queries whose engine has no bins: how they are commanded, and how far they are, by Spark's progress or by topics."""

import threading
import time
import uuid
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pyspark.sql.streaming.listener import StreamingQueryListener

from impls.driver.arrivals import asking, end_offsets
from impls.driver.observed import OnEvent, OnLine, RunningQuery
from impls.errors import UsageError
from impls.placement import initial

_INTERVAL_S = 0.25
_SMOOTHED = 8  # intervals
_ASK_S = 10.0
_AWAY_S = 60.0  # for which a broker that was killed may be away
_STOP_DEADLINE_S = 90.0


class BinlessQuery(RunningQuery):
    """A query that a supervisor thread rescales: a goal stands for as many workers as it names.

    Attributes:
        wants_restart: never; it is there for whoever expects a StreamHandle.
        goal: the assignment last commanded; the engine has none.
    """

    wants_restart = False

    def __init__(self, name: str, workers: int, bins: int, on_event: OnEvent):
        super().__init__()
        self._name, self._bins, self._on_event = name, bins, on_event
        self._workers, self._usual = workers, workers
        self.goal: NDArray[np.int32] = initial(bins, workers)
        self._lock = threading.RLock()
        self._pending: tuple[str, int] | None = None  # a command that is not carried out yet: (id, workers)
        self._stopping = False

    @property
    @abstractmethod
    def _migrating(self) -> bool:
        """Whether a command is pending or being carried out."""

    def rebalance(self, goal: NDArray[np.int32], *, label: str = "rebalance") -> str:
        """Has the query rescaled to as many workers as a goal names and returns the command's id.

        A goal that keeps the number of workers, which would have no effect, takes one more, and the next such goal one
        less.

        Raises:
            UsageError: the query has ended, or is being rescaled.
        """
        with self._lock:
            if self._ended.is_set() or self._stopping:
                raise UsageError("The query has ended: start it again before giving it a command.")
            if self._migrating:
                raise UsageError("The query is being rescaled: wait until that is done.")
            id_ = uuid.uuid4().hex
            self._pending = (id_, self._wanted(int(goal.max()) + 1))
            self.goal = np.asarray(goal, np.int32).copy()
        self._on_event("command", {"id": id_, "label": label})
        return id_

    def _wanted(self, workers: int) -> int:
        wanted, self._usual = next_workers(workers, self._usual, self._workers)
        return wanted

    def _status(self, epoch: int, *, settled: bool) -> dict[str, Any]:
        """Returns epoch or interval, workers, whether a rescale is under way, whether all input has had its effect."""
        with self._lock:
            about = {"epoch": epoch, "workers": self._workers, "queued": 0, "migrating": self._migrating}
            return {**about, "running": not self._ended.is_set(), "settled": settled}

    @property
    def measured(self) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Rates and sizes of bins: the engine has none."""
        return np.zeros(self._bins), np.zeros(self._bins, np.int64)

    def stop(self) -> None:
        """Ends the query; raises what it failed with, if it did."""
        self._stopping = True
        self._await_stopped(self._name, _STOP_DEADLINE_S)


def next_workers(named: int, usual: int, now: int) -> tuple[int, int]:
    """Returns how many workers a goal asks for where there are no bins, and what then is the usual number.

    Args:
        named: workers that the goal names.
        usual: those that the last goal of another number named.
        now: those there are.

    >>> next_workers(4, 2, 2), next_workers(2, 2, 2), next_workers(2, 2, 3)
    ((4, 4), (3, 2), (2, 2))
    """
    return (named + 1 if named == usual == now else named), named


class Ends:
    """now() returns how many records a broker has in each of some topics; raises StateError without an answer."""

    def __init__(self, bootstrap: str, *topics: str):
        self._client = asking({"bootstrap.servers": bootstrap})
        found = self._client.list_topics(timeout=_ASK_S).topics
        self._places = [[(name, number) for number in found[name].partitions] for name in topics]

    def now(self) -> tuple[int, ...]:
        """Returns the sums of the topics' end offsets, in the order of the topics."""
        ends = end_offsets(self._client, [place for part in self._places for place in part], _AWAY_S)
        return tuple(sum(ends[place] for place in part) for part in self._places)


class Intervals:
    """tell() at the end of each interval, which is due() every quarter of a second; an interval stands for an epoch.

    Attributes:
        number: of the last interval, from 0; -1 before it.
        done: records that had a result at its end.
    """

    def __init__(self, on_epoch: OnLine):
        self._on_epoch = on_epoch
        self.number, self.done = -1, 0
        self._arrived, self._said_us = 0, 0
        self._last: deque[tuple[int, int, float]] = deque(maxlen=_SMOOTHED)  # records that wait, that came, in ms

    def due(self) -> bool:
        """Returns whether the interval under way is as long as it is to be."""
        return time.time_ns() // 1000 - self._said_us >= _INTERVAL_S * 1e6

    def tell(
        self, arrived: int, done: int, *, workers: int, moved: tuple[int, int] = (0, 0), ended: str | None = None
    ) -> None:
        """Tells of the interval that ends now.

        Args:
            arrived: records in the input so far.
            done: those that have a result.
            workers: there are now.
            moved: bins, and bytes of state, that a command has moved.
            ended: id of the command that it has ended, None for none.
        """
        now_us = time.time_ns() // 1000
        begin_us = self._said_us or now_us
        total = (now_us - begin_us) / 1e3
        self._last.append((arrived - done, arrived - self._arrived, total))
        self.number += 1
        line = {
            "epoch": self.number,
            "begin_us": begin_us,
            "end_us": now_us,
            "workers": workers,
            "records": done - self.done,
            "misplaced": 0,
            "migrating": bool(moved[0]),
            "moved_bins": moved[0],
            "moved_bytes": moved[1],
            "latency_ms": self._latency_ms(),
            "ms": {"total": total},
        }
        event = {"kind": "migration_end", "id": ended, "epoch": self.number, "superseded": False}
        self._arrived, self.done, self._said_us = arrived, done, now_us
        self._on_epoch(line, [] if ended is None else [event])

    def _latency_ms(self) -> float | None:
        """Returns the mean latency of the last two seconds by Little's law, from how many records are under way.

        They are a few at one look, and the ends of the two topics are not of the same moment.
        """
        waiting, came, ms = (sum(part) for part in zip(*self._last, strict=True))
        return waiting / len(self._last) / (came / ms) if came and ms else None


_WAITING, _ASKING, _NEXT = "Waiting for data to arrive", "Getting offsets from", "Waiting for next trigger"
_UNITS = {"millisecond": 1e-3, "second": 1.0, "minute": 60.0}


class EpochListener(StreamingQueryListener):
    """Hands every finished epoch on; Spark tells of idle triggers too, which are none."""

    def __init__(self, progress: Callable[[int, int, Any], None]):
        self._hand_on = progress

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Does nothing."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Hands an epoch on."""
        progress = event.progress
        if "addBatch" in progress.durationMs:
            begun = datetime.fromisoformat(progress.timestamp)
            self._hand_on(progress.batchId, round(begun.timestamp() * 1e6), progress)

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Does nothing."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Does nothing."""


def seconds_of(trigger: str) -> float:
    """Returns a trigger's interval in seconds.

    >>> seconds_of("500 milliseconds"), seconds_of("2 seconds")
    (0.5, 2.0)
    """
    number, unit = trigger.split()
    return float(number) * _UNITS[unit.removesuffix("s")]


def idle_polls(before: int, message: str, *, apart: bool = False) -> int:
    """Returns how many polls in a row have found no epoch under way, with the status message of one more.

    Spark waits and asks for offsets in turns, and on a busy machine asks for longer than it waits. Only waiting tells
    that there was nothing to do, so a row begins with it. With epochs `apart` it waits behind each of them, whatever
    has come: only a row longer than their interval tells anything.

    >>> idle_polls(0, "Getting offsets from KafkaV2[...]"), idle_polls(0, "Waiting for data to arrive")
    (0, 1)
    >>> idle_polls(1, "Getting offsets from KafkaV2[...]"), idle_polls(2, "Processing new data")
    (2, 0)
    """
    idle = message == _WAITING or (apart and message == _NEXT) or (before > 0 and message.startswith(_ASKING))
    return before + 1 if idle else 0


def found_nothing(message: str, *, committed: bool) -> bool:
    """Returns whether a restarted query waits without having run an epoch.

    The progress of one that was run ends the restart; Spark tells of it later than it says that it waits again.

    Args:
        message: the query's status.
        committed: whether an epoch was committed since the restart.

    >>> [found_nothing("Waiting for data to arrive", committed=committed) for committed in (False, True)]
    [True, False]
    """
    return message in {_WAITING, _NEXT} and not committed


def newest_epoch(folder: Path) -> int:
    """Returns the highest number that names a file of one of Spark's logs, -1 where there is none."""
    names = [file.name for file in folder.iterdir()] if folder.is_dir() else []
    return max((int(name) for name in names if name.isdigit()), default=-1)


def state_bytes(progress: Any) -> int:
    """Returns the bytes of RocksDB's files of all state, as an epoch's progress tells them."""
    metrics: list[Mapping[str, Any]] = [operator.customMetrics for operator in progress.stateOperators]
    return sum(int(found.get("rocksdbSstFileSize", 0)) for found in metrics)
