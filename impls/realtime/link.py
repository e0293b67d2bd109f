"""Connections between the driver and the long-lived tasks of a real-time query on the same machine.

They are Unix sockets, see `impls.realtime.port`. A worker's messages are pickled. A router runs in the JVM
(`impls/spark/realtime/Link.java`), and its messages are JSON.
"""

import json
import logging
import pickle
import queue
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Client, Connection
from typing import Any

from impls.closing import Closing, close_all, closed_on_error
from impls.protocol.session import Failed, Hello, Role, Route, Routed
from impls.realtime.port import BROKEN, Port, shut_down
from impls.sockets import SocketFolder

_KEY_BYTES = 32
_NAME_BYTES = 36  # of a worker's socket: its start has 8 digits, Spark's batch up to 10, its slot up to 5
_LOG = logging.getLogger(__package__)


@dataclass(frozen=True)
class Lost:
    """What is heard last of a task: its connection has ended."""


@dataclass(frozen=True)
class Event:
    """Something that a task said.

    Attributes:
        peer: the task's `Hello`, which is also its first message.
        message: a message of `impls.protocol.session`, or `Lost`.
    """

    peer: Hello
    message: Any


class Switchboard(Closing):
    """The driver's side: takes connections, hands out what tasks say in one queue, and sends without waiting.

    `next` and `send` are for one thread. A task can be sent to from the moment that `next` returned its Hello, so a
    message meant for a task of an earlier session never reaches one that has come since.
    """

    def __init__(self, known: Callable[[Hello], Hello] = lambda hello: hello) -> None:
        """Listens from now on; `known` adds to a Hello what a task cannot know, and may take its time.

        What `known` raises is heard as the task's failure. Raises StateError when no folder can have the sockets.
        """
        self._known = known
        self._folder = SocketFolder(_NAME_BYTES)
        self.address, self.key = f"{self._folder.path}/driver", secrets.token_bytes(_KEY_BYTES)
        self._events: queue.Queue[tuple[_Peer, Any]] = queue.Queue()
        self._peers: dict[tuple[Role, int], _Peer] = {}
        with closed_on_error(self._folder):
            self._port = Port(self.address, self.key, self._listen, name="switchboard")

    def next(self, timeout_s: float | None = None) -> Event | None:
        """Returns the next event, None when there is none in time."""
        try:
            peer, message = self._events.get(timeout=timeout_s)
        except queue.Empty:
            return None
        hello = peer.hello
        assert hello is not None, "a peer says hello before anything else"
        if isinstance(message, Hello):
            self._peers[hello.role, hello.index] = peer
        elif isinstance(message, Lost) and self._peers.get((hello.role, hello.index)) is peer:
            del self._peers[hello.role, hello.index]
        return Event(hello, message)

    def send(self, role: Role, index: int, message: object) -> bool:
        """Sends to the latest task of this role and number; returns False where there is none."""
        peer = self._peers.get((role, index))
        if peer is not None:
            peer.say(message)
        return peer is not None

    def close(self) -> None:
        """Ends all connections."""
        close_all((self._port.close, self._folder.close), "switchboard")

    def _listen(self, connection: Connection) -> None:
        peer = _Peer(connection)
        try:
            self._greet(peer)
            while True:
                self._events.put((peer, peer.hear()))
        finally:
            peer.close()
            if peer.hello is not None:
                self._events.put((peer, Lost()))

    def _greet(self, peer: "_Peer") -> None:
        """Hears a task's Hello; a task about which not all can be known has failed, and whoever waits for it hears."""
        peer.greet()
        hello = peer.hello
        assert hello is not None, "a peer has greeted"
        try:
            peer.hello = self._known(hello)
        except Exception as error:
            _LOG.exception("The driver cannot take in %s %s.", hello.role, hello.index)
            failed = Failed(hello.role, hello.index, type(error).__name__, str(error))
            self._events.put((peer, hello))
            self._events.put((peer, failed))
            raise EOFError("the task is not taken in") from error
        self._events.put((peer, peer.hello))


class _Peer:
    """One connection of the driver, with a thread that sends, as a task may be slow to read."""

    def __init__(self, connection: Connection):
        self.hello: Hello | None = None
        self._speaks_json = False
        self._connection = connection
        self._outgoing: queue.Queue[object | None] = queue.Queue()

    def greet(self) -> None:
        hello = self.hear()
        if not isinstance(hello, Hello):
            raise TypeError(f"A task said {type(hello).__name__} before its Hello.")
        self.hello = hello
        threading.Thread(target=self._send, name="switchboard-says", daemon=True).start()

    def hear(self) -> Any:
        raw = self._connection.recv_bytes()
        self._speaks_json = raw.startswith(b"{")
        return from_json(raw) if self._speaks_json else pickle.loads(raw)

    def say(self, message: object) -> None:
        self._outgoing.put(message)

    def close(self) -> None:
        self._outgoing.put(None)
        shut_down(self._connection)

    def _send(self) -> None:
        try:
            while (message := self._outgoing.get()) is not None:
                self._connection.send_bytes(to_json(message) if self._speaks_json else pickle.dumps(message))
        except BROKEN:
            return  # the thread that hears has seen it
        except Exception:
            _LOG.exception("A message to a task could not be sent; its connection is ended.")
            shut_down(self._connection)


def from_json(raw: bytes) -> Hello | Routed | Failed:
    """Returns what a router says."""
    said = json.loads(raw)
    kind = said.pop("type")
    if kind == "Hello":
        return Hello("router", said["index"], 0, said["run"], said["batch"], 0, said["stage"])
    if kind == "Routed":
        return Routed(said["epoch"], tuple(said["sent"]), tuple((part, at) for part, at in said["next"]))
    return Failed("router", said["index"], said["kind"], said["text"])


def to_json(message: object) -> bytes:
    """Returns a message for a router, which knows no other than `Route`."""
    assert isinstance(message, Route), message
    said = {"epoch": message.epoch, "until": message.until, "last": message.last}
    return json.dumps({**said, "routing": message.routing.tolist()}).encode()


class Link(Closing):
    """A task's side: `say` from any thread, `hear` from one."""

    def __init__(self, address: str, key: bytes):
        """Connects to the driver; raises EOFError when it is gone."""
        try:
            self._connection = Client(address, "AF_UNIX", authkey=key)
        except OSError as error:
            raise EOFError(f"The driver at {address} is gone: {error}") from error
        self._saying = threading.Lock()

    def say(self, message: object) -> None:
        """Sends a message to the driver; raises EOFError when it is gone."""
        try:
            with self._saying:
                self._connection.send(message)
        except OSError as error:
            raise EOFError(f"The driver is gone: {error}") from error

    def hear(self) -> Any:
        """Waits for the driver's next message; raises EOFError when the driver is gone or `close` was called."""
        try:
            return self._connection.recv()
        except OSError as error:
            raise EOFError(f"The driver is gone: {error}") from error

    def close(self) -> None:
        """Ends the connection; a thread that hears gets EOFError."""
        shut_down(self._connection)
