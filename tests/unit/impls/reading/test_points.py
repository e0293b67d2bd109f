"""Keys of a query that runs: what is read where, and the sentences where something stands in the way."""

import json
import os
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from changed import Tally
from idle import Idle
from timed import BINS, TimedRun, close_all

from impls import catalog
from impls.driver.checkpoint import Checkpoint
from impls.driver.control import ask
from impls.driver.driver import Driver
from impls.driver.epochs import QueryEnded
from impls.driver.handle import StreamHandle
from impls.driver.keystate import KeyState, StateRow
from impls.driver.pipeline import PipelineChanges
from impls.errors import StateError, UsageError
from impls.operators import HashCount
from impls.placement import initial
from impls.protocol.controller import Controller
from impls.reading import environments
from impls.reading.points import PointReader
from impls.spark.shipping import pickled
from impls.store.environment import store_path


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setattr("impls.reading.points._PATIENCE_S", 0.0)
    made = TimedRun(tmp_path, HashCount(preload=3), key="long")
    made.epoch([(0, key, {}) for key in range(40)])
    yield made
    close_all()


def reader(run, operator=None, in_sql=int):
    return PointReader(run.driver, run.checkpoint, replace(run.spec, operator=operator or run.operator), in_sql)


def test_keys_come_in_their_order_and_none_is_no_key(run):
    assert [state.value for state in reader(run).get_many([39, -1, 1, 39])] == [1, None, 1, 1]
    assert reader(run).get_many([]) == []


def test_a_bin_that_has_moved_and_one_that_has_returned_are_read_where_they_are(run):
    for goal in (1, 0, 1, 0):
        run.move([goal] * BINS)
        for _ in range(3):
            run.epoch([(0, 7, {})])
            (state,) = reader(run).get_many([7])
            assert (state.value, state.epoch) == (run.number + 1, run.number)


def test_few_read_at_once_and_all_have_their_turn(run, monkeypatch):
    reading, most, look = 0, 0, environments.look

    def counted(*given):
        nonlocal reading, most
        reading += 1
        most = max(most, reading)
        time.sleep(0.002)  # others come meanwhile
        reading -= 1
        return look(*given)

    monkeypatch.setattr(environments, "look", counted)
    one = reader(run)
    with ThreadPoolExecutor(40) as pool:
        assert [states[0].value for states in pool.map(lambda _: one.get_many([7]), range(200))] == [1] * 200
    assert most <= environments._AT_ONCE


class Scattered(Tally):
    """Places keys by an expression of its own."""

    def bin_sql(self, key, bins):
        return f"mine({key}, {bins})"


def test_an_expression_of_the_operators_own_is_sparks_to_evaluate(tmp_path):
    run = TimedRun(tmp_path, Scattered(), key="string")
    run.epoch([(0, b"ann", {"value": 5})])
    (found,) = np.flatnonzero([record > 0 for record in run.controller.size])
    seen = []
    (state,) = reader(run, in_sql=lambda sql: seen.append(sql) or int(found)).get_many(["ann"])
    assert (state.value, seen) == (5, [f"mine(X'616e6e', {BINS})"])
    close_all()


def test_what_stands_in_the_way_gets_a_sentence(run):
    path = store_path(run.folder / "state", 0) / "data.mdb"
    size = path.stat().st_size
    os.truncate(path, size - 4096)
    with pytest.raises(StateError, match=r"could not be read for 0 s: The state in .* is truncated\."):
        reader(run).get_many(range(40))
    os.truncate(path, size)
    path.parent.rename(path.parent.with_name("away"))
    with pytest.raises(StateError, match="There is no state in"):
        reader(run).get_many(range(40))
    path.parent.with_name("away").rename(path.parent)
    run.controller.homes[1] = "elsewhere"
    with pytest.raises(StateError, match=r"could not be read .* Worker 1 is on the host elsewhere, which hands out no"):
        reader(run).get_many(range(40))


def test_state_of_another_query_and_that_of_a_shared_store_are_not_read(run, tmp_path):
    query = run.checkpoint.query
    run.checkpoint.query = "another"
    with pytest.raises(StateError, match="belongs to another query"):
        reader(run).get_many([7])
    run.checkpoint.query = query
    settings = tmp_path / "checkpoint" / "rescale" / "query.json"
    settings.write_text(settings.read_text().replace('"state": "own"', '"state": "shared"'))
    with pytest.raises(UsageError, match="in the store that all workers share"):
        reader(run)


def test_parts_of_a_keys_state_have_names():
    rows = [("value", "v", None, 3), ("value", "", None, 4), ("list", "l", 0, "a"), ("list", "l", 1, "b"),
            ("map", "m", ["x"], 1), ("map", "m", b"y", 2), ("timer", "", None, 9), ("timer", "", None, 5)]  # fmt: skip
    state = KeyState("u7", 2, tuple(StateRow(0, "u7", *row) for row in rows))
    assert state.value == 4
    assert (state.values, state.lists) == ({"v": 3, "": 4}, {"l": ["a", "b"]})
    assert (state.maps, state.timers) == ({"m": {("x",): 1, b"y": 2}}, [5, 9])
    assert state
    assert not KeyState("u7", 2, ())


def test_state_is_not_for_a_control_topic(tmp_path):
    going, answerers = threading.Event(), []

    class Topic:
        def close(self):
            going.set()

    def listen(answer):
        answerers.append(answer)
        return Topic()

    def waits(_epoch_of, started):
        started()
        going.wait(60)
        return QueryEnded()

    opened = Checkpoint(tmp_path, {})
    controller = Controller(initial(BINS, 1, "minimal_move"), catalog.make("megaphone-fluid"))
    changes = PipelineChanges(Driver(controller, opened, Idle(), files=None), HashCount(), pickled, ())
    query = StreamHandle(waits, changes, opened, "minimal_move", None, listen=listen)
    request = {"do": "state", "key": "7"}
    with pytest.raises(UsageError, match="'state' is unknown"):
        answerers[0](json.loads(json.dumps(request)))
    with pytest.raises(UsageError, match=re.escape("The state of this query cannot be looked at.")):
        ask(tmp_path, request)
    going.set()
    assert query.await_end(20)
    with pytest.raises(UsageError, match="The query has ended"):
        query.get(7)
