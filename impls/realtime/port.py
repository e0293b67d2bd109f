"""Connections at Unix sockets, in a folder that only this user can enter; both sides prove that they know a key."""

import contextlib
import hmac  # noqa: F401 - the handshake loads it, for which there may be no descriptor then
import logging
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.connection import Client, Connection, answer_challenge, deliver_challenge
from pathlib import Path

import pyarrow as pa

from impls.closing import Closing, close_all, ended_on_error
from impls.errors import StateError
from impls.realtime.blobs import Blob, decode
from impls.realtime.flow import Inbox
from impls.sockets import AcceptFailures

_CLOSE_S = 5.0
_PROVE_S = 10
_BACKLOG = 128
_LOG = logging.getLogger(__package__)
BROKEN = (EOFError, OSError)


class Port(Closing):
    """Listens at an address, and serves each connection in a thread of its own once both sides have proved the key.

    A connection that fails the handshake, or does not finish it in 10 s, is closed and logged. While no descriptor is
    left for another one, the port waits between two tries.

    Args:
        address: path of the socket; one that a killed process has left there is replaced.
        key: by which the sides know each other.
        serve: serves a connection, which ends when it returns or raises; what it raises besides `BROKEN` is logged.
        name: of the threads.
    """

    def __init__(self, address: str, key: bytes, serve: Callable[[Connection], None], *, name: str):
        self._address, self._key, self._serve, self._name = address, key, serve, name
        Path(address).unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX)
        with ended_on_error(self._listener.close):
            self._listener.bind(address)
            self._listener.listen(_BACKLOG)
            self._closed = threading.Event()
            self._failures = AcceptFailures(name, self._closed)
            self._lock = threading.Lock()
            self._open: set[Connection] = set()
            self._thread = threading.Thread(target=self._accept, name=name, daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Ends all connections, and takes no more."""
        if self._closed.is_set():
            return
        self._closed.set()
        close_all((self._end_accepting, self._listener.close, self._delete, self._end_connections), self._name)

    def _end_accepting(self) -> None:
        with contextlib.suppress(OSError):  # wakes the thread that accepts, on Linux
            self._listener.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(OSError), Client(self._address, "AF_UNIX"):
            pass  # and elsewhere
        self._thread.join(_CLOSE_S)

    def _delete(self) -> None:
        with contextlib.suppress(FileNotFoundError):  # the driver has ended, and with it the folder
            Path(self._address).unlink()

    def _end_connections(self) -> None:
        with self._lock:
            for connection in self._open:
                shut_down(connection)

    def _accept(self) -> None:
        while not self._closed.is_set():
            try:
                accepted, _ = self._listener.accept()
                self._begin(Connection(accepted.detach()))
                self._failures.accepted()
            except OSError as error:
                if not self._failures.goes_on(error):
                    return
            except Exception as error:
                _LOG.error("The %s could not take a connection: %s: %s", self._name, type(error).__name__, error)

    def _begin(self, connection: Connection) -> None:
        with self._lock:
            self._open.add(connection)
        hears = threading.Thread(target=self._hear, args=(connection,), name=f"{self._name}-hears", daemon=True)
        with ended_on_error(lambda: self._end(connection)):
            hears.start()

    def _hear(self, connection: Connection) -> None:
        try:
            if self._proved(connection):
                self._serve(connection)
            else:
                connection.close()
        except BROKEN:
            return  # who serves has seen it
        except Exception:
            _LOG.exception("The %s ends a connection that it cannot serve.", self._name)
        finally:
            self._end(connection)

    def _proved(self, connection: Connection) -> bool:
        """Returns whether both sides know the key; logs why not."""
        try:
            _set_deadline(connection, _PROVE_S)
            deliver_challenge(connection, self._key)
            answer_challenge(connection, self._key)
            _set_deadline(connection, 0)
        except Exception as error:  # whatever a stranger sends
            if not self._closed.is_set():
                why = f"{type(error).__name__}: {error}"
                _LOG.warning("The %s closes a connection that has not proved the query's key: %s", self._name, why)
            return False
        return True

    def _end(self, connection: Connection) -> None:
        """Ends a connection; it is closed when the last thread that may send has let go of it."""
        with self._lock:
            self._open.discard(connection)
        shut_down(connection)


@contextmanager
def _socket_of(connection: Connection) -> Iterator[socket.socket]:
    """Gives the connection's socket, without a descriptor of its own: there may be none left."""
    end = socket.socket(fileno=connection.fileno())
    try:
        yield end
    finally:
        end.detach()


def _set_deadline(connection: Connection, seconds: int) -> None:
    """Lets a read of the connection fail that waits for so long; 0 lets it wait."""
    with _socket_of(connection) as end:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", seconds, 0))


def shut_down(connection: Connection) -> None:
    """Ends a connection so that a thread that waits for it wakes; closing its descriptor would leave it waiting."""
    with contextlib.suppress(OSError), _socket_of(connection) as end:
        end.shutdown(socket.SHUT_RDWR)


class Receiver(Closing):
    """A worker's side of the connections from its routers: puts their blobs into an inbox, and counts them.

    Args:
        address: of the worker, see `impls.spark.realtime.settings.Wiring.worker_address`.
        key: by which driver and tasks know each other.
        schema: of records.
        inbox: gets the blobs, each router's in their order, or what they fail with.
    """

    def __init__(self, address: str, key: bytes, schema: pa.Schema, inbox: Inbox[Blob]):
        self._schema, self._inbox = schema, inbox
        self._came: dict[int, int] = {}
        self._changed = threading.Condition()
        self._port = Port(address, key, self._read, name="reads-blobs")

    def await_blobs(self, sent: Mapping[int, int], deadline_s: float = 60.0) -> None:
        """Returns when so many blobs of each router are in the inbox; raises StateError behind the deadline."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._has(sent), deadline_s):
                raise StateError(
                    f"Routers have sent {dict(sent)} blobs, of which {self._came} came in {deadline_s:.0f} s."
                )

    def _has(self, sent: Mapping[int, int]) -> bool:
        return all(self._came.get(router, 0) >= blobs for router, blobs in sent.items())

    def close(self) -> None:
        """Ends the connections."""
        self._port.close()

    def _read(self, connection: Connection) -> None:
        try:
            while True:
                raw = connection.recv_bytes()
                blob = decode(raw, self._schema, read_us=time.time_ns() // 1000)
                self._inbox.put(blob, len(raw))
                with self._changed:
                    self._came[blob.source] = blob.number
                    self._changed.notify_all()
        except BROKEN:
            return  # how many have been sent is said in another way
        except Exception as error:
            self._inbox.fail(error)
