"""Processors that are drawn: data says which state variables there are, and what a row or a timer does with them."""

import itertools
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from pyspark.sql import types as t
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.streaming.tws_tester import TwsTester
from pyspark.sql.types import Row

INPUT, OUTPUT = "user string, n long, ms long, place long", "user string, told string"
Operation = tuple[int, str, int]  # place of the variable, method, argument
Input = tuple[str, int, int, int]
Maker = Callable[[int], Any]

TYPES: dict[str, tuple[t.DataType, Maker]] = {
    "long": (t.LongType(), lambda n: n << 40),
    "string": (t.StringType(), lambda n: f"s{n}" if n % 3 else None),
    "double": (t.DoubleType(), lambda n: n / 8),
    "list": (t.ArrayType(t.LongType()), lambda n: list(range(n % 4))),
    "struct": (t.StructType([t.StructField("a", t.LongType()), t.StructField("b", t.StringType())]),
               lambda n: (n, f"b{n}")),
}  # fmt: skip
_VALUE: dict[str, Callable[..., Any]] = {
    "exists": lambda state, *_: state.exists(),
    "get": lambda state, *_: plain(state.get()),
    "update": lambda state, n, of: state.update((of(n),)),
    "clear": lambda state, *_: state.clear(),
}
_LIST: dict[str, Callable[..., Any]] = {
    "exists": lambda state, *_: state.exists(),
    "get": lambda state, *_: [plain(item) for item in state.get()],
    "put": lambda state, n, of: state.put([(of(n),), (of(n + 1),)]),
    "append": lambda state, n, of: state.appendValue((of(n),)),
    "extend": lambda state, n, of: state.appendList([(of(n),), (of(n + 2),)]),
    "clear": lambda state, *_: state.clear(),
}
_MAP: dict[str, Callable[..., Any]] = {  # without `exists`: to the tester a map whose last field was removed still does
    "get": lambda state, n, _: plain(state.getValue(_field(n))),
    "contains": lambda state, n, _: state.containsKey(_field(n)),
    "update": lambda state, n, of: state.updateValue(_field(n), (of(n),)),
    "items": lambda state, *_: sorted(str([plain(key), plain(value)]) for key, value in state.iterator()),
    "keys": lambda state, *_: sorted(map(plain, state.keys())),
    "values": lambda state, *_: sorted(str(plain(value)) for value in state.values()),
    "remove": lambda state, n, _: state.removeKey(_field(n)),
    "clear": lambda state, *_: state.clear(),
}
METHODS = {"value": _VALUE, "list": _LIST, "map": _MAP}
TIMERS = ("register", "delete", "list")
TTL_MS = 3_600_000  # longer than any test


def plain(value: Any) -> Any:
    return list(map(plain, value)) if isinstance(value, tuple | list) else value


def _field(n: int) -> tuple[str]:
    return (f"k{n % 3}",)


def _schema(kind: t.DataType) -> t.StructType:
    return t.StructType([t.StructField("n", kind)])


@dataclass
class Drawn(StatefulProcessor):
    """A row with the number n carries out action n, and tells what each of its operations gave.

    Attributes:
        variables: kind and type of each state variable.
        actions: operations of each action; those of variable -1 are on timers, which only a row has.
        lives: whether variables have a time to live.
        name: what the names of its variables begin with.
    """

    variables: Sequence[tuple[str, str]]
    actions: Sequence[Sequence[Operation]]
    lives: bool = False
    name: str = "v"

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle, ttl = handle, TTL_MS if self.lives else None
        makers: dict[str, Callable[[str, t.StructType], Any]] = {
            "value": lambda name, schema: handle.getValueState(name, schema, ttl),
            "list": lambda name, schema: handle.getListState(name, schema, ttl),
            "map": lambda name, schema: handle.getMapState(name, _schema(t.StringType()), schema, ttl),
        }
        self.states = [
            makers[kind](f"{self.name}{place}", _schema(TYPES[of][0]))
            for place, (kind, of) in enumerate(self.variables)
        ]

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        for row in sorted(rows, key=lambda row: row.place):
            told = [self._row(operation, row.n, row.ms) for operation in self._action(row.n)]
            yield Row(user=key[0], told=json.dumps([row.n, told]))

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:  # noqa: N802, N803
        at = expiredTimerInfo.getExpiryTimeInMs()
        told = [self._state(operation, at) for operation in self._action(at) if operation[0] >= 0]
        yield Row(user=key[0], told=json.dumps([f"timer {at}", told]))

    def _action(self, n: int) -> Sequence[Operation]:
        return self.actions[n % len(self.actions)]

    def _row(self, operation: Operation, n: int, ms: int) -> Any:
        place, method, argument = operation
        if place >= 0:
            return self._state(operation, n)
        if method == "list":
            return sorted(self.handle.listTimers())  # Spark's order is that of RocksDB's bytes
        return (self.handle.registerTimer if method == "register" else self.handle.deleteTimer)(ms + 100 + argument)

    def _state(self, operation: Operation, n: int) -> Any:
        place, method, argument = operation
        kind, of = self.variables[place]
        return METHODS[kind][method](self.states[place], n + argument, TYPES[of][1])


def drawn(random: Random, *, timed: bool, lives: bool = False, name: str = "v") -> Drawn:
    """A processor of up to three state variables and four actions."""
    variables = [(random.choice(sorted(METHODS)), random.choice(sorted(TYPES))) for _ in range(random.randint(1, 3))]
    places = range(-1 if timed else 0, len(variables))

    def operation() -> Operation:
        place = random.choice(places)
        methods = TIMERS if place < 0 else tuple(METHODS[variables[place][0]])
        return place, random.choice(methods), random.randint(0, 3)

    actions = [[operation() for _ in range(random.randint(1, 3))] for _ in range(random.randint(1, 4))]
    return Drawn(variables, actions, lives, name)


class Oracle:
    """A processor under pyspark's TwsTester, which has no JVM; epochs with watermarks as Spark's.

    Attributes:
        told: of each user what came, in order.
    """

    def __init__(self, processor: Drawn, *, timed: bool, delay_ms: int):
        self._processor, mode = processor, "EventTime" if timed else "None"
        self._tester = TwsTester(processor, timeMode=mode, eventTimeExtractor=(lambda row: row.ms) if timed else None)
        self._timed, self._delay_ms, self._next, self._now = timed, delay_ms, 0, 0
        self.told: dict[str, list[str]] = defaultdict(list)

    def epoch(self, rows: Sequence[Input]) -> None:
        """Gives rows to the processor, then the timers up to the watermark of the epochs before."""
        for user in dict.fromkeys(user for user, *_ in rows):
            given = [Row(user=u, n=n, ms=ms, place=place) for u, n, ms, place in rows if u == user]
            self._take(self._tester.test(user, given))
        if self._timed and self._next > self._now:
            self._now = self._next
            self._take(self._tester.setWatermark(self._now))
        self._next = max([self._next, *(ms - self._delay_ms for _, _, ms, _ in rows)])

    def state(self, users: Iterable[str]) -> set[tuple[str, ...]]:
        """What users have: user, kind, variable, field and value, the last two as texts."""
        found, drawn = set(), self._processor
        for user, (place, (kind, _)) in itertools.product(users, enumerate(drawn.variables)):
            name = f"{drawn.name}{place}"
            match kind:
                case "value":
                    value = self._tester.peekValueState(name, user)
                    pairs = [] if value is None else [(None, value)]
                case "list":
                    pairs = list(enumerate(self._tester.peekListState(name, user)))
                case _:
                    pairs = list(self._tester.peekMapState(name, user).items())
            found |= {(user, kind, name, str(plain(field)), str(plain(value))) for field, value in pairs}
        timers = self._tester.handle._timers  # of which the tester shows nothing
        return found | {(user, "timer", "", "None", str(at)) for user in users for at in timers.listTimers(user)}

    def _take(self, rows: Any) -> None:
        for row in rows:
            self.told[row.user].append(row.told)
