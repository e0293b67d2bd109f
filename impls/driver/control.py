"""The control channel: a second process asks a running query for its status or gives it a command.

One line of JSON each way over a Unix socket; `<checkpoint>/rescale/control.json` has its path.
"""

import contextlib
import json
import logging
import socket
import socketserver
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from impls.closing import Closing
from impls.driver.journal import replace_bytes
from impls.errors import StateError, UsageError
from impls.sockets import AcceptFailures, SocketFolder, delete_left_folder, left_folders

_DEADLINE_S = 10.0
_LINE_BYTES = 4 << 20  # a version of the pipeline with its code as text
_FINISH_S = 3.0
_NAME = "control"
_LOG = logging.getLogger(__package__)

Answerer = Callable[[dict[str, Any]], dict[str, Any]]
"""Takes a request and returns its answer; raises UsageError when it refuses, another error when it cannot read it."""


class Lent(NamedTuple):
    """An answer with something that whoever asked has until it closes its connection, or dies."""

    answer: dict[str, Any]
    take_back: Callable[[], None]


Lender = Callable[[dict[str, Any]], dict[str, Any] | Lent]
"""Does what an `Answerer` does, and may lend something."""


class Listener(Protocol):
    """What gives a query requests from elsewhere while it runs."""

    def status(self) -> dict[str, Any]:
        """Returns what became of the requests, as JSON values."""

    def close(self) -> None:
        """Ends it; no request comes behind it."""


class ControlServer(Closing):
    """Answers requests with `handle(request) -> answer` in threads of its own until closed.

    A UsageError of `handle` travels back as its sentence. The socket is in a folder that only this user can enter.

    Raises StateError when no folder can have the socket.
    """

    def __init__(self, folder: Path, handle: Lender):
        self._address = folder / "control.json"
        _delete_left(self._address)
        with ExitStack() as opened:
            sockets = opened.enter_context(SocketFolder(len(_NAME), [folder]))
            self._server = _Server(str(sockets.path / _NAME), handle)
            opened.callback(self._server.server_close)
            thread = threading.Thread(target=self._server.serve_forever, args=(0.2,), name="control", daemon=True)
            thread.start()
            opened.callback(thread.join, _DEADLINE_S)
            opened.callback(self._server.end)
            replace_bytes(self._address, json.dumps({"socket": str(sockets.path / _NAME)}).encode())
            opened.callback(self._address.unlink, missing_ok=True)
            self._opened = opened.pop_all()

    def close(self) -> None:
        """Stops answering, lets requests under way finish for 3 s, and removes the socket."""
        self._opened.close()


def _delete_left(address: Path) -> None:
    """Deletes the sockets that killed drivers have left; the checkpoint's lock says that they are dead."""
    for folder in left_folders(address.parent):
        delete_left_folder(folder)
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        delete_left_folder(Path(json.loads(address.read_text())["socket"]).parent)


class _Server(socketserver.ThreadingUnixStreamServer):
    """Its handlers' threads end with it: one that waits for a request at once, one that answers in 3 s."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, address: str, handle: Lender):
        self.handle = handle
        self._ended, self._lock = threading.Event(), threading.Condition()
        self._open: set[socket.socket] = set()
        self._failures = AcceptFailures("control socket", self._ended)
        super().__init__(address, _Handler)

    def end(self) -> None:
        self._ended.set()
        self.shutdown()
        with self._lock:
            for request in self._open:
                with contextlib.suppress(OSError):
                    request.shutdown(socket.SHUT_RD)
            self._lock.wait_for(lambda: not self._open, _FINISH_S)

    def get_request(self) -> Any:
        try:
            found = super().get_request()
        except OSError as error:
            self._failures.goes_on(error)
            raise
        self._failures.accepted()
        return found

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.discard(request)
            self._lock.notify_all()
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        _LOG.exception("A request at the control socket could not be answered.")


class _Handler(socketserver.StreamRequestHandler):
    server: _Server
    timeout = _DEADLINE_S  # for a request that does not come

    def handle(self) -> None:
        with contextlib.suppress(ConnectionError, TimeoutError):  # whoever asked has gone away
            if line := self.rfile.readline(_LINE_BYTES):
                self._answer(line)

    def _answer(self, line: bytes) -> None:
        answer: dict[str, Any] | Lent
        try:
            answer = self.server.handle(json.loads(line))
        except UsageError as error:
            answer = {"error": str(error)}
        except StateError as error:  # such as a journal that cannot be written
            answer = {"error": f"The request was not carried out: {error}"}
        except Exception as error:  # of a request: code that cannot be loaded, a number too large
            answer = {"error": f"The request is not understood: {type(error).__name__}: {error}."}
        if not isinstance(answer, Lent):
            self._write(answer)
            return
        try:
            self._write(answer.answer)
            self.connection.settimeout(None)
            while self.rfile.read(1):
                pass
        finally:
            answer.take_back()

    def _write(self, answer: dict[str, Any]) -> None:
        self.wfile.write(json.dumps(answer).encode() + b"\n")


def ask(checkpoint: str | Path, request: dict[str, Any]) -> dict[str, Any]:
    """Sends a request to the query that runs on a checkpoint and returns its answer.

    Raises:
        UsageError: no query runs there, it does not answer in 10 s, or it refused the request.
    """
    answer = ask_if_running(checkpoint, request)
    if answer is None:
        raise UsageError(f"No running query answers on the checkpoint {checkpoint}.")
    return answer


def ask_if_running(checkpoint: str | Path, request: dict[str, Any]) -> dict[str, Any] | None:
    """Returns what `ask` returns, None where no query runs on the checkpoint or answers in 10 s.

    Raises UsageError when the query refused the request.
    """
    with lent_if_running(checkpoint, request) as answer:
        return answer


@contextlib.contextmanager
def lent_if_running(checkpoint: str | Path, request: dict[str, Any]) -> Iterator[dict[str, Any] | None]:
    """Yields what `ask_if_running` returns; the query takes back at the end what it has lent (`Lent`).

    Raises UsageError when the query refused the request.
    """
    address, sent = Path(checkpoint) / "rescale" / "control.json", json.dumps(request).encode() + b"\n"
    with socket.socket(socket.AF_UNIX) as client:
        yield _answered(client, address, sent)


def _answered(client: socket.socket, address: Path, sent: bytes) -> dict[str, Any] | None:
    try:
        path = json.loads(address.read_text())["socket"]
        client.settimeout(_DEADLINE_S)
        client.connect(path)
        client.sendall(sent)
        with client.makefile("rb") as file:
            line = file.readline()
    except (OSError, ValueError, KeyError, TypeError):
        return None
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
