"""The controller belongs to one thread at a time: whoever changes it has its lock, as others who look have."""

import threading

import numpy as np
import pytest
from idle import Idle

from impls import catalog
from impls.driver.checkpoint import Checkpoint
from impls.driver.driver import Driver
from impls.driver.epochs import QueryEnded
from impls.driver.handle import StreamHandle
from impls.driver.pipeline import PipelineChanges
from impls.errors import UsageError
from impls.operators import HashCount
from impls.operators.steps import Filter
from impls.placement import initial
from impls.protocol.controller import Controller
from impls.protocol.events import MigrationBegun
from impls.spark.shipping import pickled

DEADLINE_S = 30.0
BINS = 16
CHANGES = ("accept", "plan", "adopt", "observe", "to_json")
LOOKS = ("view", "migrating", "busy", "commanded", "misplaced", "changing", "location", "routing", "queued", "homes")


class Watched(Controller):
    """Notes each change without the driver's lock, and each look without it from another thread than the driver's."""

    driver: Driver | None = None
    seen: set[str]
    without: list[str]

    def __getattribute__(self, name):
        if name in CHANGES or name in LOOKS:
            self._watch(name)
        return super().__getattribute__(name)

    def _watch(self, name):
        driver, thread = self.driver, threading.current_thread().name
        if driver is None or (name in LOOKS and thread == "rescale-supervisor"):
            return
        self.seen.add(name)
        if not held(driver):
            self.without.append(f"{name} in {thread}")


def held(driver):
    """Whether nobody else can have the controller now."""
    entered = threading.Event()

    def enter():
        with driver.locked():
            entered.set()

    threading.Thread(target=enter, daemon=True).start()
    return not entered.wait(0.01)


class Query:
    """A query of one worker, whose epochs follow each other as the test lets them."""

    def __init__(self, folder, controller=None):
        self.opened = Checkpoint(folder, {})
        self.controller = controller or Controller(initial(BINS, 1, "minimal_move"), catalog.make("megaphone-fluid"))
        self.driver = Driver(self.controller, self.opened, Idle(), files=None)
        self.go_on, self.paused = threading.Event(), threading.Event()
        changes = PipelineChanges(self.driver, HashCount(), pickled, ())
        self.handle = StreamHandle(self._run, changes, self.opened, "minimal_move", None)

    def _run(self, epoch_of, started):
        started()
        epoch = 0
        try:
            while True:
                self.go_on.wait()
                epoch_of(None, epoch)
                epoch += 1
                self.paused.set()
        except QueryEnded as ended:
            return ended


@pytest.fixture
def watched(tmp_path):
    controller = Watched(initial(BINS, 1, "minimal_move"), catalog.make("megaphone-fluid"))
    controller.seen, controller.without = set(), []
    query = Query(tmp_path, controller)
    controller.driver = query.driver
    yield query
    query.go_on.set()
    query.handle.stop()


def test_every_change_and_every_look_from_elsewhere_has_the_lock(watched):
    handle, controller = watched.handle, watched.controller
    watched.go_on.set()
    assert watched.paused.wait(DEADLINE_S)
    handle.rescale(2)
    handle.rebalance(np.arange(BINS, dtype=np.int32) % 2)
    handle.rebalance()
    assert handle.moves(1)
    assert handle.await_migration(DEADLINE_S)
    handle.status(), handle.goal, handle.measured, handle.pipeline()
    id_ = handle.insert(Filter("none", bool))
    assert handle.change(id_)["id"] == id_
    handle.await_change(id_, DEADLINE_S)
    assert sorted(set(controller.without)) == []
    assert controller.seen >= {"accept", "plan", "observe", "view", "migrating", "commanded", "changing", "location"}


def test_commands_of_many_threads_between_epochs_are_one_order(tmp_path):
    query, threads, times = Query(tmp_path), 6, 15
    begin, ids, errors, begun = threading.Barrier(threads), [], [], []
    query.driver.listeners.append(
        lambda record: begun.extend(e.id for e in record.events if isinstance(e, MigrationBegun))
    )

    def command(number):
        begin.wait()
        for step in range(times):
            try:
                ids.append(query.handle.rescale(1 + (number + step) % BINS))
                status = query.handle.status()
                assert sum(status["bins"]) == BINS
            except Exception as error:
                errors.append(error)

    query.go_on.set()
    others = [threading.Thread(target=command, args=(number,)) for number in range(threads)]
    for thread in others:
        thread.start()
    for thread in others:
        thread.join(DEADLINE_S)
    goal = query.handle.goal
    assert query.handle.await_migration(DEADLINE_S)
    with query.driver.locked() as controller:
        assert np.array_equal(controller.location, goal)
    query.handle.stop()
    assert errors == []
    assert len(begun) == threads * times
    assert sorted(begun) == sorted(ids)


@pytest.mark.parametrize("ask", [
    lambda handle: handle.rescale(2), lambda handle: handle.rebalance(), lambda handle: handle.remove("none"),
    lambda handle: handle.insert(Filter("none", bool)),
])  # fmt: skip
def test_a_query_that_ends_takes_no_command(tmp_path, ask):
    query = Query(tmp_path)
    query.driver.end()
    before = query.opened.commands.path.read_bytes()
    with pytest.raises(UsageError):
        ask(query.handle)
    assert query.opened.commands.path.read_bytes() == before
    query.go_on.set()
    query.handle.stop()
