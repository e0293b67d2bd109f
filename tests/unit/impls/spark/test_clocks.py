"""Clocks of hosts: the offset of one that is ahead is found, as exactly as is said."""

import socket
import threading
import time

import pytest

from impls.spark.cluster import ask_clock, serve_clock


@pytest.fixture
def shifted():
    """A server whose clock is 5 s ahead and that answers 2 ms late, at its address."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            connection, _ = server.accept()
            with connection:
                while connection.recv(8, socket.MSG_WAITALL):
                    time.sleep(0.002)
                    connection.sendall((time.time_ns() + 5_000_000_000).to_bytes(8, "big"))

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()
        thread.join(5)
        assert not thread.is_alive()


def test_the_offset_of_a_clock_is_found_within_what_is_said(shifted):
    ahead, within = ask_clock(shifted)
    assert within >= 1.0
    assert abs(ahead + 5_000) <= within


def test_clocks_of_one_machine_do_not_differ_for_any_number_of_askers():
    with serve_clock("127.0.0.1") as at:
        found = [ask_clock(at) for _ in range(3)]
    assert all(abs(ahead) <= within < float("inf") for ahead, within in found)


def test_a_server_that_has_ended_is_not_taken_for_a_clock():
    with serve_clock("127.0.0.1") as at:
        pass
    with pytest.raises(ConnectionError):
        ask_clock(at)
