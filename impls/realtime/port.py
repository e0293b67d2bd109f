"""Connections at Unix sockets, in a folder that only this user can enter; both sides prove that they know a key."""

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from multiprocessing.connection import Client, Connection, Listener, answer_challenge, deliver_challenge
from pathlib import Path

import pyarrow as pa

from impls.closing import Closing
from impls.errors import StateError
from impls.realtime.blobs import Blob, decode
from impls.realtime.flow import Inbox

_CLOSE_S = 5.0
BROKEN = (EOFError, OSError)


class Port(Closing):
    """Listens at an address, and serves each connection in a thread of its own once both sides have proved the key.

    Args:
        address: path of the socket; one that a killed process has left there is replaced.
        key: by which the sides know each other.
        serve: serves a connection, which ends when it returns or raises.
        name: of the threads.
    """

    def __init__(self, address: str, key: bytes, serve: Callable[[Connection], None], *, name: str):
        self._address, self._key, self._serve, self._name = address, key, serve, name
        Path(address).unlink(missing_ok=True)
        self._listener = Listener(address, "AF_UNIX", backlog=128)
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._open: set[Connection] = set()
        self._thread = threading.Thread(target=self._accept, name=name, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends all connections, and takes no more."""
        if self._closed.is_set():
            return
        self._closed.set()
        with contextlib.suppress(OSError), Client(self._address, "AF_UNIX"):
            pass  # wakes the thread that accepts
        self._thread.join(_CLOSE_S)
        with contextlib.suppress(FileNotFoundError):  # the driver has ended, and with it the folder
            self._listener.close()
        with self._lock:
            for connection in self._open:
                shut_down(connection)

    def _accept(self) -> None:
        while not self._closed.is_set():
            with contextlib.suppress(*BROKEN):
                connection = self._listener.accept()
                with self._lock:
                    self._open.add(connection)
                threading.Thread(
                    target=self._prove, args=(connection,), name=f"{self._name}-hears", daemon=True
                ).start()

    def _prove(self, connection: Connection) -> None:
        with contextlib.suppress(Exception):  # who does not speak as a task is turned away
            deliver_challenge(connection, self._key)
            answer_challenge(connection, self._key)
            self._serve(connection)
        with self._lock:
            self._open.discard(connection)
        shut_down(connection)


def shut_down(connection: Connection) -> None:
    """Ends a connection so that a thread that waits for it wakes; closing its descriptor would leave it waiting."""
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(connection.fileno())) as end:
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
