"""The handle of a query without Spark: how it ends, whatever fails on the way."""

import json
import socket
import threading

import numpy as np
import pytest
from idle import Idle

from impls import catalog
from impls.closing import closed_on_error
from impls.driver.checkpoint import Checkpoint
from impls.driver.control import ControlServer, ask
from impls.driver.driver import Driver
from impls.driver.epochs import QueryEnded
from impls.driver.handle import StreamHandle
from impls.driver.pipeline import PipelineChanges
from impls.driver.prometheus import MetricsServer
from impls.errors import StateError
from impls.operators import HashCount
from impls.placement import initial
from impls.protocol.controller import Controller
from impls.spark.shipping import pickled

DEADLINE_S = 30.0


def handle(folder, run, *, bins=256, policy="minimal_move", **more):
    with closed_on_error(Checkpoint(folder, {})) as opened:
        controller = Controller(initial(bins, 1, policy), catalog.make("megaphone-fluid"))
        driver = Driver(controller, opened, Idle(), files=None)
        changes = PipelineChanges(driver, HashCount(), pickled, ())
        return StreamHandle(run, changes, opened, policy, None, **more)


def ends(_epoch_of, started):
    started()
    return QueryEnded()


def fails():
    raise OSError("the socket is gone")


def test_what_cannot_be_freed_at_the_end_is_the_failure_and_the_rest_is_freed(tmp_path):
    query = handle(tmp_path, ends, end=fails)
    with pytest.raises(OSError, match="the socket is gone"):
        query.await_end(20)
    Checkpoint(tmp_path, {}).close()  # nobody holds it


def test_what_a_query_failed_with_comes_before_what_its_end_fails_with(tmp_path):
    def broken(_epoch_of, _started):
        raise StateError("The disk is full.")

    query = handle(tmp_path, broken, end=fails)
    with pytest.raises(StateError, match="The disk is full"):
        query.await_end(20)


def test_a_rescale_to_workers_of_which_some_get_no_bin_moves_bins_once(tmp_path):
    def waits(epoch_of, started):
        started()
        epoch = 0
        try:
            while True:
                epoch_of(None, epoch)
                epoch += 1
        except QueryEnded as ended:
            return ended

    with handle(tmp_path, waits, policy="consistent_hashing") as query:
        assert query.moves(52)
        query.rescale(52)
        assert len(np.unique(query.goal)) == 51
        assert not query.moves(52)
        assert query.moves(51)


def test_a_query_that_does_not_end_is_said_to_be_where_it_is(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("impls.driver.handle._STOP_DEADLINE_S", 0.1)
    goes_on = threading.Event()

    def waits_for_something(_epoch_of, started):
        started()
        assert goes_on.wait(DEADLINE_S), "nobody let it go on"
        return QueryEnded()

    with handle(tmp_path, waits_for_something) as query:
        with pytest.raises(StateError, match=r"The query rescale-\w+ did not end in 0 s\."):
            query.stop()
        assert "in waits_for_something" in caplog.text
        goes_on.set()
        assert query.await_end(DEADLINE_S)


class Topic:
    """What gives a query requests from elsewhere."""

    def __init__(self):
        self.closed = False

    def status(self):
        return {}

    def close(self):
        self.closed = True


class Parts:
    """All that a query closes at its end, of which one raises behind its end."""

    def __init__(self, folder, monkeypatch, broken):
        self.folder, self.topic, self.freed, self.go_on = folder, Topic(), [], threading.Event()
        owners = {
            "autoscaling": (StreamHandle, "end_autoscaling"), "metrics": (MetricsServer, "close"),
            "control": (ControlServer, "close"), "topic": (Topic, "close"), "checkpoint": (Checkpoint, "close"),
        }  # fmt: skip
        if broken in owners:
            owner, method = owners[broken]
            closes = getattr(owner, method)

            def fails_behind(part):
                monkeypatch.setattr(owner, method, closes)
                closes(part)
                raise OSError(f"the {broken} is broken")

            monkeypatch.setattr(owner, method, fails_behind)
        self._broken = broken
        self.query = handle(folder, self._run, end=self._free, listen=lambda _: self.topic)
        self.port = self.query.serve_metrics()

    def _run(self, epoch_of, started):
        started()
        try:
            epoch_of(None, 0)
            self.go_on.wait()
            epoch_of(None, 1)
        except QueryEnded as ended:
            return ended

    def _free(self):
        self.freed.append(True)
        if self._broken == "executor":
            raise OSError("the executor is broken")

    def check_closed(self):
        assert self.topic.closed
        assert self.freed == [True]
        assert not (self.folder / "rescale" / "control.json").exists()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", self.port), timeout=DEADLINE_S)
        Checkpoint(self.folder, {}).close()


@pytest.mark.parametrize("broken", ["autoscaling", "metrics", "control", "topic", "executor", "checkpoint"])
def test_whatever_part_fails_the_others_are_closed_and_who_waits_hears_of_it(tmp_path, monkeypatch, broken):
    parts = Parts(tmp_path, monkeypatch, broken)
    found = {}

    def wait(name, how):
        try:
            how()
        except Exception as error:
            found[name] = str(error)

    waiting = {
        "end": lambda: parts.query.await_end(DEADLINE_S),
        "migration": lambda: parts.query.await_migration(DEADLINE_S),
        "stop": parts.query.stop,
    }
    parts.query.rescale(2)
    threads = [threading.Thread(target=wait, args=one) for one in waiting.items()]
    for thread in threads:
        thread.start()
    parts.go_on.set()
    for thread in threads:
        thread.join(DEADLINE_S)
    assert found == dict.fromkeys(waiting, f"the {broken} is broken")
    parts.check_closed()


def test_a_query_that_cannot_be_woken_is_stopped_all_the_same(tmp_path, monkeypatch):
    parts = Parts(tmp_path, monkeypatch, "")

    def asleep():
        parts.go_on.set()
        raise OSError("the gateway is gone")

    parts.query.changes.driver.on_command = asleep
    parts.query.stop()
    parts.check_closed()


def test_a_query_that_a_function_of_the_users_exits_has_failed(tmp_path):
    def exits(_epoch_of, _started):
        raise SystemExit(3)

    query = handle(tmp_path, exits)
    with pytest.raises(StateError, match="The query was ended by SystemExit: 3"):
        query.await_end(DEADLINE_S)
    Checkpoint(tmp_path, {}).close()


def test_a_control_client_that_waits_is_answered_when_the_query_fails(tmp_path):
    go_on = threading.Event()

    def broken(_epoch_of, started):
        started()
        go_on.wait()
        raise StateError("The disk is full.")

    query = handle(tmp_path, broken)
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(DEADLINE_S)
        client.connect(json.loads((tmp_path / "rescale" / "control.json").read_text())["socket"])
        assert ask(tmp_path, {"do": "status"})["running"]
        go_on.set()
        assert client.recv(1) == b""
    with pytest.raises(StateError, match="The disk is full"):
        query.await_end(DEADLINE_S)


def test_what_cannot_listen_leaves_no_control_socket(tmp_path):
    def refuses(_answer):
        raise StateError("The control topic cannot be read.")

    with pytest.raises(StateError, match="control topic"):
        handle(tmp_path, ends, listen=refuses)
    assert not (tmp_path / "rescale" / "control.json").exists()
