"""The runner of a real-time query: what an epoch ends with decides whether the query ends or is started again."""

import math
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from impls.driver.epochs import QueryEnded, StopNeeded
from impls.errors import StateError, UsageError
from impls.faults import started_ticks
from impls.protocol.session import Hello
from impls.realtime.executor import SessionLost, SlotsNeeded
from impls.spark.realtime.runner import runner_of
from impls.spark.topics import Topics


class Started:
    """A query of Spark that runs until it is stopped, or until the test ends it."""

    def __init__(self, failure: str = ""):
        self.isActive, self._failure = not failure, failure
        self.stopped = 0

    def exception(self) -> Exception | None:
        return Exception(self._failure) if self._failure else None

    def stop(self) -> None:
        self.isActive = False
        self.stopped += 1


class Query:
    """Starts queries; `failures` are those of its first starts."""

    location, topics = "/no/checkpoint", Topics()

    def __init__(self, *failures: str):
        self.slots: list[int] = []
        self.started: list[Started] = []
        self._failures = list(failures)

    def writer(self, slots: int) -> "Query":
        self.slots.append(slots)
        return self

    def start(self) -> Started:
        self.started.append(Started(self._failures.pop(0) if self._failures else ""))
        return self.started[-1]


class Executor:
    """All tasks are there at once; one has said in `words` with what it failed, and nobody has heard it yet."""

    def __init__(self, unclosed: Sequence[Hello] = (), words: str = ""):
        self.complete, self.unclosed, self.pids, self.needed = True, unclosed, [one.pid for one in unclosed], {}
        self.check: Callable[[], None] = lambda: None
        self._words, self._heard = words, False

    def end_session(self):
        self.pids, self._heard = [], False

    def check_tasks(self) -> None:
        if self._heard:
            raise SessionLost(self._words)

    def take(self, timeout_s: float) -> bool:
        if self._words and not self._heard:
            self._heard = True
            return True
        if timeout_s:  # what is lost is heard a little later
            self.pids = []
        return False


class Epochs:
    """Raises what a test lists, an epoch each; None is an epoch that is done."""

    def __init__(self, executor: Executor, *ends: Exception | None):
        self.executor, self.ends, self.numbers = executor, list(ends), []

    def __call__(self, batch: Any, number: int) -> None:
        self.numbers.append(number)
        self.executor.check()
        end = self.ends.pop(0) if self.ends else QueryEnded()
        if end is not None:
            raise end


def run(
    query: Query, *ends: Exception | None, executor: Executor | None = None
) -> tuple[Exception | None, Epochs, int]:
    executor = executor or Executor()
    epochs, begun = Epochs(executor, *ends), []
    runs = runner_of(query, executor, slots=2, next_epoch=lambda: len(epochs.numbers), busy=lambda: True)
    return runs(epochs, lambda: begun.append(1)), epochs, len(begun)


@pytest.mark.parametrize("signal", [QueryEnded(), StopNeeded(3, "query"), StateError("no"), UsageError("no")])
def test_a_signal_ends_the_query_and_is_returned(signal):
    query = Query()
    ended, epochs, begun = run(query, None, None, signal)
    assert ended is signal
    assert epochs.numbers == [0, 1, 2]
    assert begun == 1
    assert [one.stopped for one in query.started] == [1]


def test_a_plan_with_more_workers_starts_the_query_with_as_many_slots():
    query = Query()
    ended, _, begun = run(query, None, SlotsNeeded(5), None)
    assert isinstance(ended, QueryEnded)
    assert query.slots == [2, 5]
    assert [one.stopped for one in query.started] == [1, 1]
    assert begun == 1, "for the user it is the same start"


def test_after_a_failure_the_query_is_started_again():
    query = Query()
    ended, _, _ = run(query, None, SessionLost("worker 0: it died"), None)
    assert isinstance(ended, QueryEnded)
    assert query.slots == [2, 2]


def test_five_failures_in_a_row_end_it_with_the_cause():
    query = Query()
    ended, _, _ = run(query, *[SessionLost("worker 0: StateError: broken")] * 9)
    assert isinstance(ended, StateError)
    assert "5 times in a row" in str(ended)
    assert "worker 0: StateError: broken" in str(ended)
    assert len(query.started) == 5


def test_an_epoch_that_is_done_lets_the_failures_be_forgotten():
    query = Query()
    lost = SessionLost("gone")
    ended, _, _ = run(query, *[lost] * 4, None, *[lost] * 4, None)
    assert isinstance(ended, QueryEnded)
    assert len(query.started) == 9


def test_a_query_that_ends_by_itself_is_told_by_its_own_message():
    query = Query(*["java.lang.Exception: the broker is gone"] * 9)
    ended, _, _ = run(query)
    assert isinstance(ended, StateError)
    assert "the broker is gone" in str(ended)
    assert query.started[-1].stopped == 1


def test_what_a_task_has_said_names_the_cause_before_sparks_words_do():
    query = Query(*["IllegalStateException: Worker 3 is gone"] * 9)
    ended, _, _ = run(query, executor=Executor(words="worker 3: StateError: No space left on device"))
    assert "No space left on device" in str(ended)
    assert "Worker 3 is gone" not in str(ended)


def test_too_few_threads_are_not_tried_again():
    query = Query("[CONCURRENT_SCHEDULER_INSUFFICIENT_SLOT] The minimum number of free slots is 4")
    ended, _, _ = run(query)
    assert isinstance(ended, UsageError)
    assert "real_time_threads" in str(ended)
    assert len(query.started) == 1


@contextmanager
def waiting() -> Iterator[subprocess.Popen]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        yield child


def hello(child: subprocess.Popen, started: int) -> Hello:
    return Hello("worker", 0, 1, "run", 0, child.pid, started=started)


@pytest.mark.parametrize("connected", [True, False])
def test_the_processes_of_the_tasks_are_gone_when_it_returns(connected):
    with waiting() as child:
        executor = Executor([hello(child, started_ticks(child.pid))])
        executor.pids = executor.pids if connected else []
        ended, _, _ = run(Query(), executor=executor)
        assert isinstance(ended, QueryEnded)
        assert child.wait(30) < 0, "it was not killed"


def test_a_process_that_has_the_number_of_a_worker_that_is_gone_is_left_alone():
    with waiting() as child:
        run(Query(), executor=Executor([hello(child, started_ticks(child.pid) - 1)]))
        child.communicate(b"\n", 30)
        assert child.returncode == 0


def test_a_death_between_epochs_is_heard_before_the_next_one():
    query, executor, begun = Query(), Executor(), []

    def epoch(_: Any, number: int) -> None:
        begun.append(number)
        if len(begun) == 2:
            raise QueryEnded
        query.started[-1].isActive = executor.complete = False

    def start() -> Started:
        executor.complete = True
        return Query.start(query)

    query.start = start  # type: ignore[method-assign]
    run_on = runner_of(query, executor, slots=2, next_epoch=lambda: 0, busy=lambda: False, quiet_s=lambda: math.inf)
    assert isinstance(run_on(epoch, lambda: None), QueryEnded)
    assert len(query.started) == 2
