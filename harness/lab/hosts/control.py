"""Commands to a cluster's supervisor: a line of JSON over a socket in the cluster's folder, answered by another."""

import json
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from impls.errors import UsageError

_ANSWER_DEADLINE_S = 90.0  # a host needs a JVM
_SPEAK_DEADLINE_S = 5.0
_BYTES_MOST = 1 << 20


class CommandListener:
    """The supervisor's end: `answer` waits for a command and answers it."""

    def __init__(self, folder: Path):
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with _address(folder) as path:
            Path(path).unlink(missing_ok=True)
            old = os.umask(0o177)
            try:
                self._socket.bind(path)
            finally:
                os.umask(old)
        self._socket.listen()

    def answer(self, carry_out: Callable[[dict[str, Any]], Any], wait_s: float) -> None:
        """Answers one command, if one comes within `wait_s`; what fails is told as a sentence."""
        self._socket.settimeout(wait_s)
        try:
            connection, _ = self._socket.accept()
        except TimeoutError:
            return
        with connection:
            connection.settimeout(_SPEAK_DEADLINE_S)
            try:
                told = _answer(carry_out, _line(connection))
                connection.sendall(json.dumps(told).encode() + b"\n")
            except (OSError, ValueError):
                return  # nobody waits for the answer, or it was no command

    def close(self) -> None:
        """Answers nobody any more."""
        self._socket.close()


def _answer(carry_out: Callable[[dict[str, Any]], Any], line: bytes) -> dict[str, Any]:
    command = json.loads(line)
    if not isinstance(command, dict):
        return {"error": f"{command!r} is no command."}
    try:
        return {"answer": carry_out(command)}
    except UsageError as error:
        return {"error": str(error)}


def tell(folder: Path, **command: Any) -> Any:
    """Sends a command to the supervisor of the cluster in a folder and returns its answer.

    Raises:
        UsageError: there is none, or it cannot do that.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client, _address(folder) as path:
        client.settimeout(_ANSWER_DEADLINE_S)
        try:
            client.connect(path)
            client.sendall(json.dumps(command).encode() + b"\n")
            told = json.loads(_line(client))
        except (OSError, ValueError) as error:
            raise UsageError(f"No cluster answers in {folder} ({error}): ./inv cluster.start begins one.") from error
    if "error" in told:
        raise UsageError(told["error"])
    return told["answer"]


def _line(connection: socket.socket) -> bytes:
    with connection.makefile("rb") as lines:
        return lines.readline(_BYTES_MOST)


@contextmanager
def _address(folder: Path) -> Iterator[str]:
    """Yields the socket's path by way of a descriptor: a socket's own path may have 107 bytes at most."""
    try:
        descriptor = os.open(folder, os.O_PATH)
    except OSError as error:
        raise UsageError(f"There is no cluster in {folder}: {error.strerror}.") from error
    try:
        yield f"/proc/self/fd/{descriptor}/control"
    finally:
        os.close(descriptor)
