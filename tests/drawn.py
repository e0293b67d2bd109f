"""Processors that are drawn: data says which state variables there are, and what a row or a timer does with them."""

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from processing import schema
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.streaming.tws_tester import TwsTester
from pyspark.sql.types import Row

INPUT, OUTPUT = "user string, n long, at long", "user string, told string"
Operation = tuple[int, str, int]  # place of the variable, method, argument
Input = tuple[str, int, int]

_VALUE: dict[str, Callable[..., Any]] = {
    "exists": lambda state, _: state.exists(),
    "get": lambda state, _: _plain(state.get()),
    "update": lambda state, n: state.update((n,)),
    "clear": lambda state, _: state.clear(),
}
_LIST: dict[str, Callable[..., Any]] = {
    "exists": lambda state, _: state.exists(),
    "get": lambda state, _: [_plain(item) for item in state.get()],
    "put": lambda state, n: state.put([(n,), (n + 1,)]),
    "append": lambda state, n: state.appendValue((n,)),
    "extend": lambda state, n: state.appendList([(n,), (-n,)]),
    "clear": lambda state, _: state.clear(),
}
_MAP: dict[str, Callable[..., Any]] = {  # without `exists`: to the tester a map whose last field was removed still does
    "get": lambda state, n: _plain(state.getValue(_field(n))),
    "contains": lambda state, n: state.containsKey(_field(n)),
    "update": lambda state, n: state.updateValue(_field(n), (n,)),
    "items": lambda state, _: sorted([_plain(key), _plain(value)] for key, value in state.iterator()),
    "keys": lambda state, _: sorted(map(_plain, state.keys())),
    "values": lambda state, _: sorted(map(_plain, state.values())),
    "remove": lambda state, n: state.removeKey(_field(n)),
    "clear": lambda state, _: state.clear(),
}
METHODS = {"value": _VALUE, "list": _LIST, "map": _MAP}
TIMERS = ("register", "delete", "list")


def _plain(value: Any) -> Any:
    return None if value is None else list(value)


def _field(n: int) -> tuple[str]:
    return (f"k{n % 3}",)


@dataclass
class Drawn(StatefulProcessor):
    """A row with the number n carries out action n, and tells what each of its operations gave.

    Attributes:
        variables: kind of each state variable.
        actions: operations of each action; those of variable -1 are on timers, which only a row has.
    """

    variables: Sequence[str]
    actions: Sequence[Sequence[Operation]]

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle, self.states = handle, []
        makers: dict[str, Callable[[str], Any]] = {
            "value": lambda name: handle.getValueState(name, schema("n long")),
            "list": lambda name: handle.getListState(name, schema("n long")),
            "map": lambda name: handle.getMapState(name, schema("k string"), schema("n long")),
        }
        self.states = [makers[kind](f"v{place}") for place, kind in enumerate(self.variables)]

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        for row in rows:
            told = [self._row(operation, row.n, row.at) for operation in self._action(row.n)]
            yield Row(user=key[0], told=json.dumps([row.n, told]))

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:  # noqa: N802, N803
        at = expiredTimerInfo.getExpiryTimeInMs()
        told = [self._state(operation, at) for operation in self._action(at) if operation[0] >= 0]
        yield Row(user=key[0], told=json.dumps([f"timer {at}", told]))

    def _action(self, n: int) -> Sequence[Operation]:
        return self.actions[n % len(self.actions)]

    def _row(self, operation: Operation, n: int, at: int) -> Any:
        place, method, argument = operation
        if place >= 0:
            return self._state(operation, n)
        if method == "list":
            return list(self.handle.listTimers())
        return (self.handle.registerTimer if method == "register" else self.handle.deleteTimer)(at + 100 + argument)

    def _state(self, operation: Operation, n: int) -> Any:
        place, method, argument = operation
        return METHODS[self.variables[place]][method](self.states[place], n + argument)


class Oracle:
    """A processor under pyspark's TwsTester, which has no JVM; epochs with watermarks as Spark's.

    Attributes:
        told: of each user what came, in order.
    """

    def __init__(self, processor: Drawn, *, timed: bool, delay_ms: int):
        mode = "EventTime" if timed else "None"
        self._tester = TwsTester(processor, timeMode=mode, eventTimeExtractor=(lambda row: row.at) if timed else None)
        self._timed, self._delay_ms, self._next, self._now = timed, delay_ms, 0, 0
        self.told: dict[str, list[str]] = defaultdict(list)

    def epoch(self, rows: Sequence[Input]) -> None:
        """Gives rows to the processor, then the timers up to the watermark of the epochs before."""
        for user in dict.fromkeys(user for user, _, _ in rows):
            self._take(self._tester.test(user, [Row(user=u, n=n, at=at) for u, n, at in rows if u == user]))
        if self._timed and self._next > self._now:
            self._now = self._next
            self._take(self._tester.setWatermark(self._now))
        self._next = max([self._next, *(at - self._delay_ms for _, _, at in rows)])

    def _take(self, rows: Any) -> None:
        for row in rows:
            self.told[row.user].append(row.told)
