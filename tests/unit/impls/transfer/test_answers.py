"""What a puller does with answers: it takes whole bins that were asked for, from a server with the token, in time."""

import re
import socket
import threading
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import flight
from served import SETTINGS, fill

from impls.errors import CorruptStateError
from impls.store.bins import size_record
from impls.store.environment import Store, store_path
from impls.store.tables import iter_range
from impls.transfer.client import fetch
from impls.transfer.ticket import PROOF, SCHEMA, Ticket, batch_of, items_of, packed, proof_of

LOOPBACK = "127.0.0.1"
TICKET = Ticket("q", 2, LOOPBACK, 5, 0, (1, 2))
QUICK = replace(SETTINGS, connect_s=1.0, stall_s=0.4, busy_s=0.4)


class Answering(flight.FlightServerBase):
    """Answers every request with batches, and with the proof of whoever has a token."""

    def __init__(self, batches, token=SETTINGS.token, schema=SCHEMA):
        super().__init__(f"grpc+tcp://{LOOPBACK}:0")
        self._batches, self._token, self._schema = batches, token, schema
        self.address = f"grpc+tcp://{LOOPBACK}:{self.port}"

    def do_get(self, _context, ticket):
        proof = {PROOF: proof_of(ticket.ticket, self._token)}
        return flight.GeneratorStream(self._schema.with_metadata(proof), iter(self._batches))


@pytest.fixture(scope="module")
def bins(tmp_path_factory):
    """Items of bins 1 and 2 with their size records behind them."""
    folder = tmp_path_factory.mktemp("bins")
    fill(folder, 0, 4)
    with Store.open(store_path(folder, 0)) as store, store.reading() as txn:
        low, high = b"\x01\x00\x01", b"\x01\x00\x03"
        items = [(bytes(name), bytes(value)) for name, value in iter_range(txn, low, high)]
        parts = {bin_: [item for item in items if item[0][2] == bin_] for bin_ in (1, 2)}
        return {bin_: [*part, size_record(txn, bin_)] for bin_, part in parts.items()}


def pull(server, tmp_path, after=lambda: None):
    """Returns the bins that came, and what was raised."""
    came = []
    with server, Store.open(tmp_path / "target") as store, store.begin() as txn:
        try:
            for bin_, _ in fetch(QUICK, server.address, TICKET, txn, expected_bytes=1000):
                came.append(bin_)
        except CorruptStateError as error:
            return came, str(error)
        finally:
            after()
        return came, ""


def batches(*items):
    return list(packed(items, 3000))


def test_whole_bins_are_taken_whatever_the_messages_are(bins, tmp_path):
    assert pull(Answering(batches(*bins[1], *bins[2])), tmp_path) == ([1, 2], "")
    alone = [batch_of([name], [value]) for name, value in (*bins[1], *bins[2])]
    assert pull(Answering([batch_of([], []), *alone]), tmp_path) == ([1, 2], "")


WRONG = {
    "one bin only": (lambda b: [*b[1]], [1], "1 bins less"),
    "nothing": (lambda _: [], [], "2 bins less"),
    "a bin that ends early": (lambda b: [*b[1], *b[2][:-1]], [1], "1 bins less"),
    "an item less": (lambda b: [*b[1][1:], *b[2]], [], "holds 199 entries where 200 are recorded"),
    "an item twice": (lambda b: [b[1][0], *b[1]], [], "out of order"),
    "items out of order": (lambda b: [b[1][1], b[1][0], *b[1][2:]], [], "out of order"),
    "another order of bins": (lambda b: [*b[2], *b[1]], [], "another bin"),
    "the other bin's size": (lambda b: [*b[1][:-1], b[2][-1]], [], "out of order"),
    "a bin more": (lambda b: [*b[1], *b[2], *b[1]], [1, 2], "more than was asked for"),
    "a size that is damaged": (lambda b: [*b[1][:-1], (b[1][-1][0], bytes(20))], [], "checksum does not match"),
    "a short name": (lambda _: [(b"\x01", b"x")], [], "another bin"),
    "an empty name": (lambda _: [(b"", b"x")], [], "out of order"),
    "the meta record": (lambda b: [(b"\x00", b"x"), *b[1]], [], "another bin or table"),
    "a queue": (lambda b: [(b"\x02\x00\x01", b"x"), *b[1]], [], "another bin or table"),
    "an outbox": (lambda b: [(b"\x03out", b"x"), *b[1]], [], "another bin or table"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_was_not_asked_for_is_refused_and_bins_before_it_are_kept(bins, tmp_path, name):
    make, came, says = WRONG[name]
    found = pull(Answering(batches(*make(bins))), tmp_path)
    assert found[0] == came
    assert says in found[1]


def test_a_server_without_the_token_is_not_believed(bins, tmp_path):
    server = Answering(batches(*bins[1], *bins[2]), token=b"another")
    came, says = pull(server, tmp_path)
    assert (came, says) == ([], f"What answers at {server.address} is not a server of this query.")


def test_other_columns_are_refused(tmp_path):
    other = pa.schema([("name", pa.string()), ("value", pa.int64())])
    batch = pa.record_batch([pa.array(["a"]), pa.array([1])], schema=other)
    assert "wrong columns" in pull(Answering([batch], schema=other), tmp_path)[1]


@pytest.mark.parametrize("first", [True, False])
def test_a_server_that_falls_silent_is_given_up(bins, tmp_path, first):
    silent = threading.Event()

    def slow():
        if not first:
            yield from batches(*bins[1])
        silent.wait(20)
        yield from batches(*bins[2])

    came, says = pull(Answering(slow()), tmp_path, silent.set)
    assert came == ([] if first else [1])
    assert "has sent nothing for" in says


@pytest.mark.lengthy
def test_a_port_that_takes_connections_and_says_nothing_is_given_up(tmp_path):
    with socket.create_server((LOOPBACK, 0)) as deaf, Store.open(tmp_path / "target") as store, store.begin() as txn:
        address = f"grpc+tcp://{LOOPBACK}:{deaf.getsockname()[1]}"
        with pytest.raises(CorruptStateError, match="has sent nothing for"):
            list(fetch(QUICK, address, TICKET, txn, expected_bytes=0))


def test_nobody_at_the_address_is_said_in_a_sentence(tmp_path):
    server = Answering([])
    server.shutdown()
    with Store.open(tmp_path / "target") as store, store.begin() as txn:
        with pytest.raises(CorruptStateError, match=re.escape(f"Host {LOOPBACK} does not answer at {server.address}")):
            list(fetch(QUICK, server.address, TICKET, txn, expected_bytes=0))
        for address in ("grpc+tcp://no.such.host.example:1", "grpc+tcp://127.0.0.1:99999", "nonsense"):
            with pytest.raises(CorruptStateError, match="does not answer"):
                list(fetch(QUICK, address, TICKET, txn, expected_bytes=0))


@given(st.lists(st.tuples(st.binary(max_size=20), st.binary(max_size=200))), st.integers(1, 2000), st.integers(0, 3))
def test_items_come_out_as_they_went_in(items, limit, skip):
    found = list(packed(iter(items), limit))
    assert [item for batch in found for item in items_of(batch)] == items
    assert all(batch.num_rows == 1 or sum(map(len, sum(items_of(batch), ()))) <= limit for batch in found)
    if items:
        whole = batch_of(*map(list, zip(*items, strict=True)))
        assert items_of(whole.slice(skip)) == items[skip:]
