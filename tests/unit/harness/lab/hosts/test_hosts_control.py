"""Commands to a supervisor: answered, refused in a sentence, and unharmed by what is none."""

import socket
import stat
import threading

import pytest

from harness.lab.hosts.control import CommandListener, tell
from impls.errors import UsageError


@pytest.fixture
def folder(tmp_path):
    """A folder with a path longer than a socket's may be, whose listener doubles numbers."""
    deep = tmp_path / ("x" * 100) / ("y" * 100)
    deep.mkdir(parents=True)
    listener, ended = CommandListener(deep), threading.Event()

    def double(command):
        if "number" not in command:
            raise UsageError("A number is missing.")
        return command["number"] * 2

    def serve():
        while not ended.is_set():
            listener.answer(double, 0.05)

    thread = threading.Thread(target=serve)
    thread.start()
    yield deep
    ended.set()
    thread.join()
    listener.close()


def test_a_command_is_answered(folder):
    assert tell(folder, number=21) == 42
    assert stat.S_IMODE((folder / "control").stat().st_mode) == 0o600


def test_what_the_supervisor_refuses_is_told_as_its_sentence(folder):
    with pytest.raises(UsageError, match=r"^A number is missing\.$"):
        tell(folder, letter="a")


@pytest.mark.parametrize("garbage", [b"", b"\n", b"no json\n", b"[1]\n", b"7\n", b"\xff" * 5000])
def test_garbage_does_no_harm(folder, garbage, monkeypatch):
    monkeypatch.chdir(folder)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as own:
        own.connect("control")
        own.sendall(garbage)
    assert tell(folder, number=2) == 4


def test_a_folder_without_a_supervisor_is_said(tmp_path):
    with pytest.raises(UsageError, match=r"^No cluster answers in .*: \./inv cluster\.start begins one\.$"):
        tell(tmp_path, do="status")
    with pytest.raises(UsageError, match=r"^There is no cluster in .*: No such file or directory\.$"):
        tell(tmp_path / "nothing", do="status")
