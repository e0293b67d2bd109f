"""What a host's server refuses: it counts it, changes nothing, and serves who has the right ticket afterwards."""

import hashlib
import hmac
import json
import socket
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
from hosts import A, B, until
from pyarrow import flight
from served import SETTINGS, Host

from impls.transfer.settings import Transfer
from impls.transfer.ticket import seal


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Host:
    return Host(tmp_path_factory.mktemp("host"))


def sealed(token: bytes = SETTINGS.token, **other: Any) -> Callable[[Host], None]:
    return lambda host: host.ask(seal(host.ticket(**other), token))


def raw(change: Callable[[bytes], bytes]) -> Callable[[Host], None]:
    return lambda host: host.ask(change(seal(host.ticket(), SETTINGS.token)))


def looked(**other: Any) -> Callable[[Host], None]:
    return lambda host: host.ask(seal(host.look(**other), SETTINGS.token))


def raw_look(part: bytes, other: bytes) -> Callable[[Host], None]:
    """A look with another body, which has the right seal."""

    def ask(host: Host) -> None:
        body = seal(host.look(), SETTINGS.token)[32:]
        assert part in body
        body = body.replace(part, other)
        host.ask(hmac.new(SETTINGS.token, b"look" + body, hashlib.sha256).digest() + body)

    return ask


def call(what: Callable[[flight.FlightClient], Any]) -> Callable[[Host], None]:
    def ask(host: Host) -> None:
        with flight.FlightClient(host.address) as client:
            what(client)

    return ask


def put(client: flight.FlightClient) -> None:
    writer, _ = client.do_put(flight.FlightDescriptor.for_path("worker-0000"), pa.schema([("a", pa.binary())]))
    writer.write_batch(pa.record_batch([pa.array([b"x"])], names=["a"]))
    writer.close()


PATH = flight.FlightDescriptor.for_path("worker-0000")
ATTACKS: dict[str, tuple[Callable[[Host], None], str]] = {
    "no seal": (lambda host: host.ask(json.dumps({"worker": 0, "bins": [0]}).encode() * 9), "token"),
    "empty token": (sealed(b""), "token"),
    "wrong token": (sealed(b"x" * 32), "token"),
    "token of the generation before": (sealed(Transfer.new().token, generation=1), "token"),
    "one bit changed": (raw(lambda r: r[:-9] + bytes([r[-9] ^ 1]) + r[-8:]), "token"),
    "seal of another request": (raw(lambda r: r[:32] + r[32:].replace(b'"worker":0', b'"worker":1')), "token"),
    "an answer's proof for a seal": (raw(lambda r: hashlib.sha256(r).digest() + r[32:]), "token"),
    "cut off": (raw(lambda r: r[:20]), "malformed"),
    "nothing": (raw(lambda _: b""), "malformed"),
    "a megabyte": (raw(lambda r: r * 4000), "malformed"),
    "another query": (sealed(query="p"), "other"),
    "an older generation": (sealed(generation=1), "other"),
    "a ticket for another host": (sealed(host=B), "other"),
    "another query's environment": (sealed(worker=1), "foreign"),
    "an epoch too late": (sealed(worker=2), "old"),
    "an epoch too early": (sealed(worker=3), "ahead"),
    "a worker that is not here": (sealed(worker=7), "absent"),
    "a path for a worker": (sealed(worker="../../etc"), "malformed"),
    "a negative worker": (sealed(worker=-1), "malformed"),
    "a bin beyond the last": (sealed(bins=(1 << 14,)), "malformed"),
    "a bin twice": (sealed(bins=(1, 1)), "malformed"),
    "bins that are none": (sealed(bins=("META",)), "malformed"),
    "a look with a wrong token": (lambda host: host.ask(seal(host.look(), b"x" * 32)), "token"),
    "a look at another key": (
        lambda host: host.ask(seal(host.look(), SETTINGS.token).replace(b"[0,", b"[1,")),
        "token",
    ),
    "a look from another host": (looked(host=B), "other"),
    "a look at another query's environment": (looked(worker=1), "foreign"),
    "a look at a worker that is not here": (looked(worker=7), "damaged"),
    "a look at a path": (looked(worker="../../etc"), "malformed"),
    "a look at a bin beyond the last": (looked(keys=((1 << 14, b""),)), "malformed"),
    "a look at what is no key": (raw_look(b'"keys":[[0,"00000000"]]', b'"keys":[[0,"no digits"]]'), "malformed"),
    "a look at a key without a bin": (raw_look(b'"keys":[[0,"00000000"]]', b'"keys":["00"]'), "malformed"),
    "a look for what is no form": (looked(values=3), "malformed"),
    "put": (call(put), "method"),
    "exchange": (call(lambda c: c.do_exchange(PATH)[1].read_all()), "method"),
    "an action": (call(lambda c: list(c.do_action(flight.Action("drop", b"")))), "method"),
    "the list": (call(lambda c: list(c.list_flights())), "method"),
    "the actions": (call(lambda c: list(c.list_actions())), "method"),
    "a description": (call(lambda c: c.get_flight_info(PATH)), "method"),
    "a schema": (call(lambda c: c.get_schema(PATH)), "method"),
    "a password": (call(lambda c: c.authenticate_basic_token("a", "b")), "method"),
}


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", ATTACKS)
def test_what_is_no_right_request_is_refused_counted_and_harmless(host, tmp_path, name):
    attack, reason = ATTACKS[name]
    before, refused, pid = host.state(), host.told["refused"].get(reason, 0), host.told["pid"]
    with pytest.raises((pa.ArrowException, OSError)):
        attack(host)
    until("the count", lambda: host.told["refused"].get(reason, 0) == refused + 1)
    assert host.pull(tmp_path / "target") > 0
    assert (host.state(), host.told["pid"]) == (before, pid)


@pytest.fixture
def connections(host: Host) -> Iterator[Callable[[], socket.socket]]:
    """Makes connections to the server's port, closed in the end."""
    parts = urlsplit(host.address)
    with ExitStack() as stack:
        yield lambda: stack.enter_context(socket.create_connection((parts.hostname, parts.port), 5))


GARBAGE = {
    "zeros": bytes(100_000),
    "noise": hashlib.shake_256(b"seed").digest(100_000),
    "http": b"GET /worker-0000/data.mdb HTTP/1.1\r\nHost: a\r\n\r\n",
    "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
    "http2 and then noise": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + hashlib.shake_256(b"more").digest(100_000),
}


@pytest.mark.parametrize("name", GARBAGE)
def test_garbage_on_the_port_does_no_harm(host, tmp_path, connections, name):
    before, pid = host.state(), host.told["pid"]
    for _ in range(20):
        with suppress(OSError):  # it may close the connection while this writes
            connections().sendall(GARBAGE[name])
    assert host.pull(tmp_path / "target") > 0
    assert (host.state(), host.told["pid"]) == (before, pid)


def test_a_thousand_connections_do_not_keep_a_puller_out(host, tmp_path, connections):
    for number in range(1000):
        connection = connections()
        if number % 2:
            connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
    pid = host.told["pid"]
    assert host.pull(tmp_path / "target") > 0
    assert host.told["pid"] == pid


@pytest.mark.lengthy
def test_a_message_beyond_the_memory_ends_the_server_and_the_next_task_gets_another(tmp_path):
    host = Host(tmp_path / A, transfer=replace(SETTINGS, memory_bytes=320 << 20))
    assert host.pull(tmp_path / "before") > 0
    pid = host.told["pid"]
    with pytest.raises((pa.ArrowException, OSError)):
        host.ask(bytes(200 << 20))
    until("the end of the server", lambda: not Path(f"/proc/{pid}/fd/0").exists())
    host.start()
    assert host.told["pid"] != pid
    assert host.pull(tmp_path / "after") > 0


def test_secrets_are_neither_in_a_file_nor_where_other_users_see_them(host):
    pid = host.told["pid"]
    secrets = (SETTINGS.token, SETTINGS.token.hex().encode(), SETTINGS.to_json().split(b'"')[3])
    seen = [Path(f"/proc/{pid}/{name}").read_bytes() for name in ("cmdline", "environ")]
    files = [path for path in host.folder.iterdir() if path.name.startswith(".transfer-")]
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    assert {path.suffix for path in files} == {".lock", ".json", ".log"}
    assert not [s for s in secrets for text in (*seen, *(path.read_bytes() for path in files)) if s in text]
    assert "token" not in repr(SETTINGS)
