"""A worker gets its routers' blobs in their order, knows when all have come, and turns strangers away."""

import socket
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client
from typing import Any

import pyarrow as pa
import pytest
from router import encode
from switchboards import DEADLINE_S

from impls.errors import StateError
from impls.realtime.blobs import Blob
from impls.realtime.flow import Inbox
from impls.realtime.port import Receiver

KEY = b"key of the query"
SCHEMA = pa.schema([("bin", pa.int32())])
BATCH = pa.RecordBatch.from_arrays([pa.array([1, 2], pa.int32())], schema=SCHEMA)


@pytest.fixture
def inbox():
    return Inbox[Blob](1 << 20)


@pytest.fixture
def receiver(tmp_path, inbox):
    with Receiver(str(tmp_path / "worker"), KEY, SCHEMA, inbox) as made:
        yield made


@pytest.fixture
def router(tmp_path, receiver):
    """Connects a router."""
    opened: list[Any] = []

    def connect(key: bytes = KEY) -> Any:
        opened.append(Client(str(tmp_path / "worker"), "AF_UNIX", authkey=key))
        return opened[-1]

    yield connect
    for connection in opened:
        connection.close()


def test_all_blobs_of_two_routers_have_come(receiver, router, inbox):
    for source in (0, 3):
        connection = router()
        for number in range(1, 101):
            connection.send_bytes(encode(source, number, 0, BATCH))
    receiver.await_blobs({0: 100, 2: 0, 3: 100}, DEADLINE_S)
    blobs = inbox.take(0)[1]
    for source in (0, 3):
        assert [blob.number for blob in blobs if blob.source == source] == list(range(1, 101))
    assert min(blob.read_us for blob in blobs) > 0


def test_blobs_that_do_not_come_are_missed_by_number(receiver, router):
    connection = router()
    connection.send_bytes(encode(0, 1, 0, BATCH))
    receiver.await_blobs({0: 1}, DEADLINE_S)
    connection.close()
    with pytest.raises(StateError, match=r"Routers have sent \{0: 2\} blobs, of which \{0: 1\} came in 0 s\."):
        receiver.await_blobs({0: 2}, 0.01)


def test_a_router_with_another_key_is_turned_away_and_others_are_not(receiver, router, inbox):
    with pytest.raises(AuthenticationError):
        router(b"another key")
    router().send_bytes(encode(0, 1, 0, BATCH))
    assert len(inbox.take(DEADLINE_S)[1]) == 1


def test_the_socket_of_a_killed_worker_is_replaced(tmp_path, inbox):
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / "worker"))
    address = str(tmp_path / "worker")
    with Receiver(address, KEY, SCHEMA, inbox) as receiver, Client(address, "AF_UNIX", authkey=KEY) as connection:
        connection.send_bytes(encode(0, 1, 0, BATCH))
        receiver.await_blobs({0: 1}, DEADLINE_S)
    assert not (tmp_path / "worker").exists()
