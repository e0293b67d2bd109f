"""Every method of a processor's handle and its state, on a real store under the real driver."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from processing import Given, ProcessorRun, schema
from pyspark.errors import PySparkRuntimeError
from pyspark.sql.streaming.stateful_processor import (
    ListState,
    MapState,
    StatefulProcessor,
    StatefulProcessorHandle,
    ValueState,
)
from pyspark.sql.types import Row
from timed import close_all

from impls.errors import UsageError


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    close_all()


DO: dict[str, Callable[[Any, Any], Any]] = {
    "value": lambda p, n: (p.v.exists(), p.v.get()),
    "update": lambda p, n: p.v.update((n, f"n{n}")),
    "clear": lambda p, n: p.v.clear(),
    "items": lambda p, n: (p.items.exists(), list(p.items.get())),
    "append": lambda p, n: p.items.appendValue((n,)),
    "extend": lambda p, n: p.items.appendList([(n,), (n + 1,)]),
    "put": lambda p, n: p.items.put([(n,)]),
    "put nothing": lambda p, n: p.items.put([]),
    "clear items": lambda p, n: p.items.clear(),
    "twice": lambda p, n: [(a, b) for a in p.items.get() for b in itertools.islice(p.items.get(), 1)],
    "map": lambda p, n: (p.m.exists(), list(p.m.iterator()), list(p.m.keys()), list(p.m.values())),
    "field": lambda p, n: (p.m.containsKey((f"k{n}",)), p.m.getValue((f"k{n}",))),
    "set": lambda p, n: p.m.updateValue((f"k{n}",), (n,)),
    "set long": lambda p, n: p.m.updateValue(("k" * 300,), (n,)),
    "remove": lambda p, n: p.m.removeKey((f"k{n}",)),
    "clear map": lambda p, n: p.m.clear(),
    "timer": lambda p, n: p.handle.registerTimer(n),
    "untimer": lambda p, n: p.handle.deleteTimer(n),
    "timers": lambda p, n: list(p.handle.listTimers()),
    "variable": lambda p, n: p.handle.getValueState("late", schema("n long")),
    "none": lambda p, n: p.v.update(None),
    "long": lambda p, n: p.v.update((n,)),
}


class Script(StatefulProcessor):
    """Does what its records say and gives what that returned."""

    ttl: int | None = None

    def init(self, handle: StatefulProcessorHandle) -> None:
        assert isinstance(handle, StatefulProcessorHandle)
        self.handle, self.known = handle, 0
        self.v = handle.getValueState("v", schema("n long, s string"), self.ttl)
        self.items = handle.getListState("items", schema("n long"), self.ttl)
        self.m = handle.getMapState("m", schema("k string"), schema("n long"), self.ttl)
        assert isinstance(self.v, ValueState)
        assert isinstance(self.items, ListState)
        assert isinstance(self.m, MapState)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        for row in rows:
            self.known += 1
            yield Row(user=key[0], got=repr(DO[row.do](self, row.n)))

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:  # noqa: N802, N803
        at, now = expiredTimerInfo.getExpiryTimeInMs(), timerValues.getCurrentProcessingTimeInMs()
        yield Row(user=key.user, got=f"timer {at} at {now}, {timerValues.getCurrentWatermarkInMs()}")


class Living(Script):
    """Whose state lives for 100 ms."""

    ttl = 100


def run(folder: Path, processor: StatefulProcessor, mode: Any = "none", **more: Any) -> ProcessorRun:
    given = Given(processor, "user string, got string", mode, "user string, do string, n long", **more)
    return ProcessorRun(folder, given)


def did(query: ProcessorRun, *steps: tuple[str, int], user: str = "ann", now: int | None = None) -> list[str]:
    """What one epoch of steps gives."""
    return [value["got"] for value in query.values(*((user, do, n) for do, n in steps), now=now)]


def test_a_value(tmp_path: Path) -> None:
    query = run(tmp_path, Script())
    assert did(query, ("value", 0), ("update", 3), ("value", 0)) == ["(False, None)", "None", "(True, (3, 'n3'))"]
    assert did(query, ("value", 0), user="bob") == ["(False, None)"]
    assert did(query, ("value", 0), ("clear", 0), ("clear", 0), ("value", 0))[0::3] == [
        "(True, (3, 'n3'))",
        "(False, None)",
    ]
    assert did(query, ("value", 0)) == ["(False, None)"]


def test_a_list(tmp_path: Path) -> None:
    query = run(tmp_path, Script())
    assert did(query, ("items", 0), ("append", 1), ("extend", 2), ("items", 0))[0::3] == [
        "(False, [])",
        "(True, [(1,), (2,), (3,)])",
    ]
    assert did(query, ("append", 4), ("twice", 0))[1] == "[((1,), (1,)), ((2,), (1,)), ((3,), (1,)), ((4,), (1,))]"
    assert did(query, ("put", 9), ("append", 8), ("items", 0))[2] == "(True, [(9,), (8,)])"
    assert did(query, ("items", 0), ("clear items", 0), ("items", 0))[0::2] == ["(True, [(9,), (8,)])", "(False, [])"]
    assert did(query, ("items", 0), ("append", 7), ("items", 0))[0::2] == ["(False, [])", "(True, [(7,)])"]


def test_a_map(tmp_path: Path) -> None:
    query = run(tmp_path, Script())
    assert did(query, ("map", 0), ("set", 1), ("set", 2), ("set", 1), ("field", 1), ("field", 3))[-2:] == [
        "(True, Row(n=1))",
        "(False, None)",
    ]
    assert did(query, ("remove", 1), ("remove", 5), ("map", 0))[2] == "(True, [(('k2',), (2,))], [('k2',)], [(2,)])"
    assert did(query, ("set long", 4), ("map", 0))[1].count("k" * 300) == 2
    assert did(query, ("map", 0))[0].count("k" * 300) == 2
    assert did(query, ("clear map", 0), ("map", 0), ("set", 6), ("map", 0))[1::2] == [
        "(False, [], [], [])",
        "(True, [(('k6',), (6,))], [('k6',)], [(6,)])",
    ]


def test_timers_of_processing_time(tmp_path: Path) -> None:
    query = run(tmp_path, Script(), "processingtime")
    steps = [("timer", 3000), ("timer", 2000), ("timer", 2000), ("timer", 2500), ("untimer", 2500), ("untimer", 1)]
    assert did(query, *steps, ("timers", 0), now=1000)[-1] == "[2000, 3000]"
    assert did(query, ("timers", 0), user="bob", now=1500) == ["[]"]
    assert did(query, now=1999) == []
    assert did(query, ("timers", 0), now=2000) == ["[2000, 3000]", "timer 2000 at 2000, 0"]
    assert did(query, now=5000) == ["timer 3000 at 5000, 0"]
    assert did(query, ("timers", 0), now=6000) == ["[]"]
    assert did(query, ("timer", 1), now=7000) == ["None", "timer 1 at 7000, 0"]


def test_processing_time_never_falls_and_is_that_of_the_plan_in_a_repeat(tmp_path: Path) -> None:
    query = run(tmp_path, Script(), "processingtime")
    did(query, ("timer", 2000), now=3000)
    rows = [("ann", "timers", 0), ("ann", "timer", 3500)]
    query.epoch(rows, now=1000)
    before = query.results()
    query.now = 9000
    query.again(rows)
    assert query.results() == before
    assert did(query) == ["timer 3500 at 9000, 0"]


def test_state_that_outlives_its_time(tmp_path: Path) -> None:
    query = run(tmp_path, Living(), "processingtime")
    did(query, ("update", 1), ("append", 1), ("set", 1), ("set long", 1), now=1000)
    did(query, ("update", 2), ("append", 2), ("set", 2), now=1060)
    look = [("value", 0), ("items", 0), ("field", 1), ("map", 0)]
    assert did(query, *look, now=1100) == [
        "(True, (2, 'n2'))",
        "(True, [(2,)])",
        "(False, None)",
        "(True, [(('k2',), (2,))], [('k2',)], [(2,)])",
    ]
    assert did(query, ("append", 3), ("items", 0), now=1159)[1] == "(True, [(2,), (3,)])"
    assert did(query, *look, now=1160)[:3] == ["(False, None)", "(True, [(3,)])", "(False, None)"]
    did(query, now=2000)
    assert entries_left(query) == 0
    did(query, ("update", 1), ("append", 1), ("set", 1), ("set long", 1), now=2000)
    did(query, ("clear", 1), ("clear items", 1), ("clear map", 1), now=2001)
    assert entries_left(query) == 0


def entries_left(query: ProcessorRun) -> int:
    """Entries of all bins, notes of timers and expiries included."""
    from impls.store.bins import read_size
    from impls.store.environment import Store, store_path

    total = 0
    for worker in range(2):
        with Store.open(store_path(query.folder / "state", worker), readonly=True) as store, store.reading() as txn:
            total += sum(read_size(txn, bin_)[0] for bin_ in range(16))
    return total


@pytest.mark.parametrize(
    ("mode", "do", "error", "text"),
    [
        ("none", "timer", PySparkRuntimeError, "INVALID_TIME_MODE.*operation=register_timer"),
        ("none", "timers", PySparkRuntimeError, "INVALID_TIME_MODE.*operation=list_timers"),
        ("none", "variable", PySparkRuntimeError, "INVALID_HANDLE_STATE.*state=INITIALIZED"),
        ("none", "none", TypeError, "not iterable"),
        ("none", "long", PySparkRuntimeError, "2 fields are required while 1 values are provided"),
        ("none", "put nothing", PySparkRuntimeError, "EMPTY_LIST"),
    ],
)
def test_what_spark_refuses_is_refused_and_nothing_is_lost(
    tmp_path: Path, mode: Any, do: str, error: type[Exception], text: str
) -> None:
    query = run(tmp_path, Script(), mode)
    did(query, ("update", 1))
    with pytest.raises(error, match=text) as raised:
        query.epoch([("ann", "update", 2), ("ann", do, 1)])
    assert "handleInputRows of Script has failed for the key Row(user='ann')" in raised.value.__notes__[0]
    query.restart()
    query.number -= 1
    assert did(query, ("value", 0)) == ["(True, (1, 'n1'))"]


class Deleting(Script):
    """Gives up its variables, and makes its value again."""

    names: tuple[str, ...] = ("v", "items", "m", "never there")
    again = False

    def init(self, handle: StatefulProcessorHandle) -> None:
        super().init(handle)
        for name in self.names:
            handle.deleteIfExists(name)
        if self.again:
            handle.getValueState("v", schema("n long, s string"), self.ttl)


class Listless(Deleting):
    names = ("items",)


class Remaking(Deleting):
    again = True


def replaced_by(query: ProcessorRun, processor: StatefulProcessor) -> None:
    """Starts the query again with another processor."""
    query.given.processor = processor
    query.operator = replace(query.operator, program=query.given.program)  # type: ignore[type-var]
    query.restart()


def test_a_deleted_variable_is_gone(tmp_path: Path) -> None:
    query = run(tmp_path, Script())
    did(query, ("append", 1), ("update", 1))
    replaced_by(query, Listless())
    did(query, ("value", 0))
    assert entries_left(query) == 1


@pytest.mark.parametrize(
    "do", ["value", "update", "clear", "items", "append", "put", "clear items", "map", "set", "remove"]
)
def test_whatever_is_done_with_a_deleted_variable_fails(tmp_path: Path, do: str) -> None:
    with pytest.raises(PySparkRuntimeError, match=r"(Value state v|List state items|Map state m) is not initialized"):
        run(tmp_path, Deleting()).epoch([("ann", do, 1)])


def test_a_variable_deleted_and_made_again_is_empty_in_every_turn(tmp_path: Path) -> None:
    query = run(tmp_path, Script())
    did(query, ("append", 1), ("update", 1))
    replaced_by(query, Remaking())
    for _ in range(2):  # also the object that was made before
        assert did(query, ("value", 0), ("update", 2), ("value", 0)) == ["(False, None)", "None", "(True, (2, 'n2'))"]
    assert entries_left(query) == 1


class Twice(Script):
    """Asks for a variable twice."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        super().init(handle)
        handle.getListState("v", schema("n long"))


@pytest.mark.parametrize(
    ("processor", "text"), [(Twice(), "DUPLICATE_STATE_VARIABLE"), (Living(), "TTL for state=v in timeMode=NoTime")]
)
def test_what_init_may_not_do(tmp_path: Path, processor: StatefulProcessor, text: str) -> None:
    with pytest.raises(PySparkRuntimeError, match=text):
        run(tmp_path, processor).epoch([("ann", "value", 0)])


class Wrong(Script):
    """Gives rows of another schema."""

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        yield Row(user=key[0], got=1 if key[0] == "bob" else "text")


def test_rows_of_another_schema_name_the_key(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="The output column got is string, not 1") as raised:
        run(tmp_path, Wrong()).epoch([("ann", "value", 0), ("bob", "value", 0)])
    assert "The output of Wrong has failed for the key Row(user='bob')" in raised.value.__notes__[0]


def test_a_copy_begins_every_turn(tmp_path: Path) -> None:
    class Counting(Script):
        def close(self) -> None:
            assert self.known == 2

    query = run(tmp_path, Counting())
    for _ in range(2):
        did(query, ("update", 1), ("update", 2))


def test_a_schema_that_init_gives_in_workers_only_is_refused(tmp_path: Path) -> None:
    class Texts(Script):
        def init(self, handle: StatefulProcessorHandle) -> None:
            super().init(handle)
            handle.getValueState("other", "n long")

    with pytest.raises(UsageError, match="give it as a StructType"):
        run(tmp_path, Texts()).epoch([("ann", "value", 0)])
