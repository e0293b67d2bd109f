"""The control channel: a second process asks a running query for its status or gives it a command.

One line of JSON each way over a Unix socket; `<checkpoint>/rescale/control.json` has its path.
"""

import contextlib
import hashlib
import json
import os
import socket
import socketserver
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from impls.driver.journal import replace_bytes
from impls.errors import StateError, UsageError

_DEADLINE_S = 10.0
_LINE_BYTES = 4 << 20  # a version of the pipeline with its code as text
_SOCKET_PATH_MAX = 100  # sockaddr_un holds 107 bytes on Linux, 103 on macOS


class ControlServer:
    """Answers requests with `handle(request) -> answer` in threads of its own until closed.

    A UsageError of `handle` travels back as its sentence.
    """

    def __init__(self, folder: Path, handle: Callable[[dict[str, Any]], dict[str, Any]]):
        self._address = folder / "control.json"
        self._socket = _socket_path(folder)
        self._socket.unlink(missing_ok=True)  # a killed driver has left it; the checkpoint's lock says it is dead
        self._server = _Server(str(self._socket), _Handler)
        self._socket.chmod(0o600)
        self._server.handle = handle
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.2,), name="control", daemon=True)
        self._thread.start()
        replace_bytes(self._address, json.dumps({"socket": str(self._socket)}).encode())

    def close(self) -> None:
        """Stops answering and removes the socket."""
        self._address.unlink(missing_ok=True)
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(_DEADLINE_S)
        self._socket.unlink(missing_ok=True)


def _socket_path(folder: Path) -> Path:
    """Returns the socket's place: in the folder where its path is short enough, in the temporary folder otherwise."""
    place = folder / "control.sock"
    if len(str(place)) <= _SOCKET_PATH_MAX:
        return place
    name = hashlib.sha256(str(folder).encode()).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"rescale-{os.getuid()}-{name}.sock"


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    handle: Callable[[dict[str, Any]], dict[str, Any]]


class _Handler(socketserver.StreamRequestHandler):
    server: _Server

    def handle(self) -> None:
        with contextlib.suppress(ConnectionError):  # whoever asked has gone away
            self._answer(self.rfile.readline(_LINE_BYTES))

    def _answer(self, line: bytes) -> None:
        try:
            answer = self.server.handle(json.loads(line))
        except UsageError as error:
            answer = {"error": str(error)}
        except StateError as error:  # such as a journal that cannot be written
            answer = {"error": f"The request was not carried out: {error}"}
        except Exception as error:  # of a request: code that cannot be loaded, a number too large
            answer = {"error": f"The request is not understood: {type(error).__name__}: {error}."}
        self.wfile.write(json.dumps(answer).encode() + b"\n")


def ask(checkpoint: str | Path, request: dict[str, Any]) -> dict[str, Any]:
    """Sends a request to the query that runs on a checkpoint and returns its answer.

    Raises:
        UsageError: no query runs there, it does not answer in 10 s, or it refused the request.
    """
    address = Path(checkpoint) / "rescale" / "control.json"
    try:
        path = json.loads(address.read_text())["socket"]
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(_DEADLINE_S)
            client.connect(path)
            client.sendall(json.dumps(request).encode() + b"\n")
            with client.makefile("rb") as file:
                line = file.readline(_LINE_BYTES)
    except (OSError, ValueError, KeyError) as error:
        raise UsageError(f"No running query answers on the checkpoint {checkpoint}.") from error
    answer: dict[str, Any] = json.loads(line) if line else {"error": "The query ended before it answered."}
    if "error" in answer:
        raise UsageError(answer["error"])
    return answer


def main(arguments: list[str]) -> int:
    """Asks from the command line and returns the exit code, 2 for bad input.

    The arguments are CHECKPOINT status | stop | rescale N [HOST ...].
    """
    try:
        match arguments:
            case [checkpoint, ("status" | "stop") as verb]:
                answer = ask(checkpoint, {"do": verb})
            case [checkpoint, "rescale", workers, *hosts] if workers.isdigit():
                answer = ask(checkpoint, {"do": "rescale", "workers": int(workers), "hosts": hosts or None})
            case _:
                sys.stderr.write(
                    "Usage: python -m impls.driver.control CHECKPOINT status | stop | rescale N [HOST ...]\n"
                )
                return 2
    except UsageError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.stdout.write(json.dumps(answer) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
