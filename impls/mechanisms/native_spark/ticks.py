"""How far a query is that tells nothing of itself, by the offsets of its topics: there is a result for every record."""

import time
from collections import deque
from collections.abc import Callable
from typing import Any

from impls.driver.arrivals import asking, end_offsets

__all__ = ["Ends", "Ticks"]

_TICK_S = 0.25
_SMOOTHED = 8  # ticks
_ASK_S = 10.0
_AWAY_S = 60.0  # for which a broker that was killed may be away


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


class Ticks:
    """tell() at the end of each tick, which is due() every quarter of a second; a tick stands for an epoch.

    Attributes:
        number: of the last tick, from 0; -1 before it.
        done: records that had a result at its end.
    """

    def __init__(self, on_epoch: Callable[[dict[str, Any], list[dict[str, Any]]], None]):
        self._on_epoch = on_epoch
        self.number, self.done = -1, 0
        self._arrived, self._said_us = 0, 0
        self._last: deque[tuple[int, int, float]] = deque(maxlen=_SMOOTHED)  # records that wait, that came, in ms

    def due(self) -> bool:
        """Returns whether the tick under way is as long as it is to be."""
        return time.time_ns() // 1000 - self._said_us >= _TICK_S * 1e6

    def tell(
        self, arrived: int, done: int, *, workers: int, moved: tuple[int, int] = (0, 0), ended: str | None = None
    ) -> None:
        """Tells of the tick that ends now.

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
