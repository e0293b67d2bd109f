"""The timers of one key: each costs the same, however many there are, and they are listed in order of their times."""

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from pyspark.sql.streaming.stateful_processor_api_client import StatefulProcessorHandleState as Phase

from impls.processor.handle import Handle
from impls.processor.scope import Scope
from impls.store import naming
from impls.store.buffered import Buffered
from impls.store.environment import Store
from impls.store.state import BinState

KEY = b"a key"


class Counted(Scope):
    """Counts what is written and which entries are read."""

    def __init__(self, entries: Buffered):
        super().__init__(entries, 0)
        self.written = self.reads = 0

    def put(self, name: bytes, value: bytes | None) -> None:
        self.written += len(name) + len(value or b"")
        super().put(name, value)

    def read(self, name: bytes) -> bytes | None:
        self.reads += 1
        return super().read(name)


@pytest.fixture
def entries(tmp_path: Path) -> Iterator[Buffered]:
    with Store.open(tmp_path / "w") as store, store.begin() as txn:
        yield Buffered(BinState(txn, 4))


def handle_on(entries: Buffered, key: bytes = KEY) -> tuple[Handle, Counted]:
    scope = Counted(entries)
    scope.at(1, key)
    made = Handle(scope, "eventtime", None)
    made.phase = Phase.INITIALIZED
    return made, scope


@pytest.mark.parametrize("do", ["registerTimer", "deleteTimer"])
def test_a_timer_costs_the_same_beside_any_number_of_others(entries: Buffered, do: str) -> None:
    costs = []
    for others in (0, 10, 1000):
        handle, scope = handle_on(entries)
        for time in range(others):
            handle.registerTimer(10_000 + time)
        if do == "deleteTimer":
            handle.registerTimer(5)
        entries.flush()
        before = scope.written, scope.reads
        getattr(handle, do)(5)
        costs.append((scope.written - before[0], scope.reads - before[1]))
        handle.deleteTimer(5)
    assert costs[0] == costs[1] == costs[2]
    assert costs[0][0] < 100


@pytest.mark.parametrize("key", [KEY, b"", b"k" * 300])
def test_timers_are_those_that_were_set_and_not_taken_back(entries: Buffered, key: bytes) -> None:
    random, expected = Random(3), set[int]()
    handle, _ = handle_on(entries, key)
    other, _ = handle_on(entries, key + b"x")
    other.registerTimer(7)
    for _ in range(400):
        time = random.randrange(-50, 50)
        if random.random() < 0.6:
            handle.registerTimer(time)
            expected.add(time)
        else:
            handle.deleteTimer(time)
            expected.discard(time)
        if random.random() < 0.1:
            entries.flush()
        assert list(handle.listTimers()) == sorted(expected)
    assert list(other.listTimers()) == [7]
    due = [name for name, _ in entries.scan(1, *naming.timers_until(1 << 62))]
    assert sorted(naming.time_of(name[1:]) for name in due) == sorted([*expected, 7])
