"""Sockets are private from their first moment, have short paths, and outlive a want of descriptors."""

import json
import logging
import os
import socket
import stat
import subprocess
import sys
import tempfile
import threading
from dataclasses import replace
from multiprocessing.connection import Client
from pathlib import Path

import pyarrow as pa
import pytest

from impls.driver.control import ControlServer, ask
from impls.errors import StateError, UsageError
from impls.protocol.session import Failed, Hello
from impls.realtime.blobs import Blob
from impls.realtime.flow import Inbox
from impls.realtime.link import Event, Link, Lost, Switchboard
from impls.realtime.port import Port, Receiver
from impls.sockets import ADDRESS_BYTES, SocketFolder
from impls.spark.realtime.settings import Wiring

DEADLINE_S = 30.0
KEY = b"key of the query"
HELLO = Hello("router", 0, 2, "run", 0, 1)


@pytest.fixture
def own(tmp_path):
    folder = tmp_path / "rescale"
    folder.mkdir()
    return folder


@pytest.fixture
def bound(monkeypatch):
    """The rights of each socket's folder at the moment in which the socket comes to be there."""
    found = []
    bind = socket.socket.bind

    def watched(self, address):
        if self.family == socket.AF_UNIX and isinstance(address, str):
            found.append(stat.S_IMODE(Path(address).parent.stat().st_mode))
        return bind(self, address)

    monkeypatch.setattr(socket.socket, "bind", watched)
    return found


@pytest.fixture
def long_tmp(tmp_path, monkeypatch):
    """A temporary folder whose path has 150 characters."""
    folder = Path(str(tmp_path / "t").ljust(150, "t"))
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return folder


def echo(request):
    return {"echo": request["do"]}


def test_a_control_socket_never_is_where_another_user_can_come(own, bound):
    umask = os.umask(0)
    try:
        with ControlServer(own, echo), Switchboard():
            pass
    finally:
        os.umask(umask)
    assert bound == [stat.S_IRWXU] * 2


def test_nobody_can_guess_where_a_control_socket_will_be(own):
    places = set()
    for _ in range(3):
        with ControlServer(own, echo):
            places.add(json.loads((own / "control.json").read_text())["socket"])
    assert len(places) == 3
    assert list(own.iterdir()) == []


@pytest.fixture(params=["beside", "elsewhere"])
def left_by_killed(request, tmp_path):
    """A checkpoint's folder and that of a killed driver's socket: in it, or elsewhere where its path is too long."""
    with tempfile.TemporaryDirectory(dir="/tmp") as short:
        beside = request.param == "beside"
        own = Path(short if beside else str(tmp_path).ljust(ADDRESS_BYTES, "t")) / "rescale"
        own.mkdir(parents=True)
        script = """
import os, sys
from pathlib import Path
from impls.driver.control import ControlServer
ControlServer(Path(sys.argv[1]), dict)
os._exit(9)
"""
        assert subprocess.run([sys.executable, "-c", script, str(own)], check=False).returncode == 9
        left = Path(json.loads((own / "control.json").read_text())["socket"]).parent
        assert left.exists()
        assert (left.parent == own) is beside
        yield own, left


def test_what_a_killed_driver_left_is_deleted_and_the_next_one_answers(left_by_killed):
    own, left = left_by_killed
    with pytest.raises(UsageError, match="No running query"):
        ask(own.parent, {"do": "status"})
    with ControlServer(own, echo):
        assert not left.exists()
        assert ask(own.parent, {"do": "status"}) == {"echo": "status"}


def test_the_socket_of_a_driver_that_died_before_it_wrote_the_address_is_deleted(own):
    left = own / "rescale-12345678"
    left.mkdir(mode=stat.S_IRWXU)
    (left / "control").touch()
    with ControlServer(own, echo):
        assert not left.exists()


def test_a_folder_that_is_not_a_socket_folder_is_left_alone(own):
    other = own / "rescale-mine"
    other.mkdir(mode=0o755)
    (other / "notes").write_text("mine")
    (own / "control.json").write_text(json.dumps({"socket": str(other / "control")}))
    with ControlServer(own, echo):
        assert (other / "notes").read_text() == "mine"


def test_a_long_checkpoint_path_and_a_long_temporary_folder_are_no_bar(long_tmp):
    checkpoint = long_tmp / "checkpoint"
    (checkpoint / "rescale").mkdir(parents=True)
    with ControlServer(checkpoint / "rescale", echo):
        place = json.loads((checkpoint / "rescale" / "control.json").read_text())["socket"]
        assert len(place) <= ADDRESS_BYTES
        assert ask(checkpoint, {"do": "status"}) == {"echo": "status"}
    assert not Path(place).parent.exists()


def test_real_time_sockets_fit_beside_a_long_temporary_folder(long_tmp):
    assert len(tempfile.gettempdir()) == 150
    inbox = Inbox[Blob](1 << 20)
    schema = pa.schema([("bin", pa.int32())])
    with Switchboard() as board:
        wiring = Wiring(board.address, board.key, "0123abcd", 2, schema)
        address = wiring.worker_address(batch=2**31 - 1, slot=65_534)
        assert len(address) <= ADDRESS_BYTES
        with Receiver(address, board.key, schema, inbox), Client(address, "AF_UNIX", authkey=board.key):
            pass
        with wiring.connect() as link:
            link.say(HELLO)
            assert board.next(DEADLINE_S) == Event(HELLO, HELLO)
    assert not Path(board.address).parent.exists()


def test_where_no_folder_can_have_a_socket_a_sentence_says_what_to_do(monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")
    monkeypatch.setattr("impls.sockets._SHORT", ())
    with pytest.raises(StateError, match="set TMPDIR to one whose path has at most 78 bytes"):
        SocketFolder(7)


STARVED = """
import json, logging, os, resource, socket, sys, threading, time
from multiprocessing.connection import Client
from pathlib import Path
from impls.realtime.port import Port
from impls.driver.control import ControlServer

logging.basicConfig()
served = threading.Event()
folder = Path(sys.argv[1])
port = Port(str(folder / "port"), b"key", lambda _: served.set(), name="port")
control = ControlServer(folder, lambda request: {"echo": 1})
address = json.loads((folder / "control.json").read_text())["socket"]
one = socket.socket(socket.AF_UNIX)
two = socket.socket(socket.AF_UNIX)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
left = []
try:
    while True:
        left.append(os.open("/dev/null", os.O_RDONLY))
except OSError:
    pass
one.connect(str(folder / "port"))
two.connect(address)
before = time.process_time()
end = time.monotonic() + 1.0
while time.monotonic() < end:
    time.sleep(0.05)
spent = time.process_time() - before
for fd in left:
    os.close(fd)
with Client(str(folder / "port"), "AF_UNIX", authkey=b"key"):
    assert served.wait(10)
two.sendall(b'{"do": "status"}\\n')
assert two.recv(100) == b'{"echo": 1}\\n'
port.close()
control.close()
print(spent)
"""


def test_without_descriptors_the_sockets_wait_say_so_once_and_go_on(own):
    run = subprocess.run(
        [sys.executable, "-c", STARVED, str(own)], capture_output=True, text=True, timeout=60, check=False
    )
    assert run.returncode == 0, run.stderr
    assert float(run.stdout) < 0.3, "seconds of CPU in one second without descriptors"
    for who in ("port", "control socket"):
        assert run.stderr.count(f"The {who} cannot take a connection and tries again: Too many open files.") == 1


def _await(condition, what):
    waited = threading.Event()
    for _ in range(int(DEADLINE_S * 100)):
        if condition():
            return
        waited.wait(0.01)
    pytest.fail(what)


def test_a_connection_that_fails_the_handshake_is_closed_and_logged(tmp_path, caplog):
    with caplog.at_level(logging.WARNING), Port(str(tmp_path / "port"), KEY, lambda _: None, name="port"):
        stranger = Client(str(tmp_path / "port"), "AF_UNIX")
        stranger.recv_bytes()
        stranger.send_bytes(b"no answer")
        assert stranger.recv_bytes() == b"#FAILURE#"
        with pytest.raises((EOFError, OSError)):
            stranger.recv_bytes()
        _await(lambda: "has not proved the query's key" in caplog.text, "the log names no stranger")


NO_DESCRIPTORS = """
import os, resource, sys, threading
from multiprocessing.connection import Pipe
from impls.realtime.port import shut_down

here, there = Pipe()
ended = threading.Event()

def hear():
    try:
        here.recv()
    except EOFError:
        ended.set()

threading.Thread(target=hear, daemon=True).start()
resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
try:
    while True:
        os.open("/dev/null", os.O_RDONLY)
except OSError:
    shut_down(here)
sys.exit(0 if ended.wait(10) else 1)
"""


def test_a_connection_is_ended_also_without_descriptors():
    run = subprocess.run([sys.executable, "-c", NO_DESCRIPTORS], timeout=60, check=False)
    assert run.returncode == 0


def test_a_connection_that_never_answers_is_closed(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr("impls.realtime.port._PROVE_S", 1)
    with caplog.at_level(logging.WARNING), Port(str(tmp_path / "port"), KEY, lambda _: None, name="port"):
        stranger = Client(str(tmp_path / "port"), "AF_UNIX")
        stranger.recv_bytes()
        assert stranger.poll(DEADLINE_S)
        with pytest.raises((EOFError, OSError)):
            stranger.recv_bytes()
    assert "has not proved the query's key" in caplog.text


def test_what_a_port_cannot_serve_is_logged_and_others_are_served(tmp_path, caplog):
    served = threading.Event()

    def serve(connection):
        if connection.recv() == "broken":
            raise ValueError("no such message")
        served.set()

    with caplog.at_level(logging.ERROR), Port(str(tmp_path / "port"), KEY, serve, name="port"):
        for word in ("broken", "right"):
            connection = Client(str(tmp_path / "port"), "AF_UNIX", authkey=KEY)
            connection.send(word)
        assert served.wait(DEADLINE_S)
        _await(lambda: "no such message" in caplog.text, "the error is not in the log")


def test_a_task_that_cannot_be_taken_in_has_failed_and_the_driver_hears_why():
    def unknown(_hello):
        raise StateError("Spark does not know stage 3 of its task.")

    with Switchboard(unknown) as board, Link(board.address, board.key) as link:
        link.say(HELLO)
        assert board.next(DEADLINE_S) == Event(HELLO, HELLO)
        assert board.next(DEADLINE_S) == Event(
            HELLO, Failed("router", 0, "StateError", "Spark does not know stage 3 of its task.")
        )
        assert board.next(DEADLINE_S) == Event(HELLO, Lost())
        with pytest.raises(EOFError):
            link.hear()


def test_a_message_that_cannot_be_sent_ends_the_connection_and_is_logged(board, caplog):
    with Link(board.address, board.key) as link, caplog.at_level(logging.ERROR):
        worker = replace(HELLO, role="worker")
        link.say(worker)
        assert board.next(DEADLINE_S) == Event(worker, worker)
        board.send("worker", 0, threading.Lock())  # cannot be pickled
        with pytest.raises(EOFError):
            link.hear()
        assert board.next(DEADLINE_S) == Event(worker, Lost())
    assert "could not be sent" in caplog.text


def test_a_silent_client_of_the_control_socket_does_not_hold_up_its_end(own):
    with ControlServer(own, echo) as server, socket.socket(socket.AF_UNIX) as silent:
        silent.connect(json.loads((own / "control.json").read_text())["socket"])
        assert ask(own.parent, {"do": "status"}) == {"echo": "status"}
        done = threading.Thread(target=server.close)
        done.start()
        done.join(2.0)
        assert not done.is_alive()
        silent.settimeout(DEADLINE_S)
        assert silent.recv(1) == b""


def test_an_answer_under_way_is_sent_before_the_control_socket_ends(own):
    begun, go_on = threading.Event(), threading.Event()

    def slow(request):
        begun.set()
        go_on.wait(DEADLINE_S)
        return {"echo": request["do"]}

    server, answers = ControlServer(own, slow), []
    asking = threading.Thread(target=lambda: answers.append(ask(own.parent, {"do": "stop"})))
    asking.start()
    assert begun.wait(DEADLINE_S)
    closing = threading.Thread(target=server.close)
    closing.start()
    go_on.set()
    for thread in (closing, asking):
        thread.join(DEADLINE_S)
    assert answers == [{"echo": "stop"}]
