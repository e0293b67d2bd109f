"""Keys looked at on another host: what is there, whoever asks and however much, and what is refused."""

import os
import socket
from dataclasses import replace

import pytest
from hosts import A
from hypothesis import assume, given
from hypothesis import strategies as st
from pyarrow import flight
from served import SETTINGS, fill, pulled

from impls.errors import CorruptStateError, UsageError
from impls.store import naming
from impls.store.checked import checked
from impls.store.entries import stored_entry
from impls.store.environment import Meta, Store, store_path, write_meta
from impls.store.lookup import ENTRY_BYTES, KeyEntries, Seen, TooLargeError, look, looking
from impls.store.state import BinState
from impls.store.tables import SIZE, bin_key
from impls.transfer import client
from impls.transfer import server as servers
from impls.transfer.client import look_from
from impls.transfer.server import BinServer
from impls.transfer.ticket import KeyRequest, RefusedError, Ticket, answer_of, open_request, requests_of, seal, seen_of

KEY = b"a key" * 50


@pytest.fixture
def server(tmp_path):
    """Serves a worker with single entries in bins 0 to 7, and one with the variables of a key in bin 3."""
    fill(tmp_path, 0, 5)
    with Store.open(store_path(tmp_path, 1)) as store, store.begin() as txn:
        state = BinState(txn, 8)
        part, front = naming.key_part(KEY), naming.key_front(KEY)
        head = naming.LIST + naming.label_part("l") + part
        items = [(naming.item_name(head, n), b"%d" % n) for n in range(3)]
        value = (naming.VALUE + naming.label_part("v") + part, front + b"7")
        state.create_entries(3, sorted([(head, front + naming.list_head(0, 3)), *items, value]))
        state.write_sizes()
        write_meta(txn, Meta.new("q", 1, 4, 2))
    with BinServer(SETTINGS, query="q", generation=2, host=A, state_dir=tmp_path) as made:
        yield made


def asked(worker, values, keys, **other):
    return replace(KeyRequest("q", 2, A, worker, values, tuple(keys)), **other)


def test_another_host_has_of_keys_what_its_environment_has(server, tmp_path):
    keys = [(bin_, n.to_bytes(4, "big")) for bin_ in range(8) for n in (0, 199, 200)]
    seen = look_from(SETTINGS, server.address, asked(0, "json", keys))
    with looking(store_path(tmp_path, 0)) as txn:
        assert seen == look(txn, "q", "json", keys)
    assert (seen.epoch, seen.begun) == (5, -1)
    for (bin_, key), found in zip(keys, seen.keys, strict=True):
        assert found == KeyEntries(True, 0, [] if key == keys[2][1] else [stored_entry(bin_, key, b"0")])
        assert found.opened("json", key) == ([] if key == keys[2][1] else [(key, b"0")])
    seen = look_from(SETTINGS, server.address, asked(1, "keyed", [(3, KEY), (3, b"another"), (4, KEY)]))
    assert [len(found.entries) for found in seen.keys] == [5, 0, 0]
    assert [found.there for found in seen.keys] == [True, True, False]
    assert server.counts.now()["looks"] == 2


def test_many_keys_take_several_requests(server):
    keys = [(bin_, n.to_bytes(4, "big") + bytes(600)) for bin_ in range(8) for n in range(60)]
    request = asked(0, "json", [*keys, (7, bytes(4))])
    parts = list(requests_of(request))
    assert sum((part.keys for part in parts), ()) == request.keys
    assert len(parts) > 2
    assert len({part.nonce for part in parts}) == len(parts)
    for part in parts:
        assert open_request(seal(part, SETTINGS.token), SETTINGS.token) == part
    seen = look_from(SETTINGS, server.address, request)
    assert [len(found.entries) for found in seen.keys] == [0] * len(keys) + [1]


def test_a_key_that_fits_into_no_request_gets_a_sentence(server):
    assert look_from(SETTINGS, server.address, asked(0, "json", [(0, bytes(125_000))])).keys[0].entries == []
    with pytest.raises(UsageError, match="A key of 131,000 bytes is too long for a question to another host"):
        look_from(SETTINGS, server.address, asked(0, "json", [(0, bytes(131_000))]))


def test_a_silent_host_is_waited_for_some_seconds_only():
    with socket.create_server((A, 0)) as silent, pytest.raises(CorruptStateError, match="has sent nothing for 3 s"):
        look_from(SETTINGS, f"grpc+tcp://{A}:{silent.getsockname()[1]}", asked(0, "json", [(0, b"")]))


def test_timers_of_a_key_are_found_among_those_of_others_for_which_there_is_no_room(tmp_path):
    keys = [b"k%05d" % n for n in range(500)] + [KEY, KEY + b"!"]
    with Store.open(tmp_path) as store, store.begin() as txn:
        state = BinState(txn, 8)
        state.create_entries(2, sorted(naming.timer_name(n % 50, key) for n, key in enumerate(keys)))
        state.write_sizes()
        write_meta(txn, Meta.new("q", 1, 4, 2))
    with looking(tmp_path) as txn:
        for n, key in ((7, keys[7]), (0, KEY), (1, KEY + b"!")):
            (found,) = look(txn, "q", "keyed", [(2, key)], most=500).keys
            assert [naming.timer_of(*entry) for entry in found.opened("keyed", key)] == [(n, key)]
        some = look(txn, "q", "keyed", [(2, key) for key in keys], most=1 << 20).keys
        assert [naming.timer_of(*found.opened("keyed", b"")[0]) for found in some] == [
            (n % 50, key) for n, key in enumerate(keys)
        ]


def test_what_cannot_be_looked_at_is_refused_in_words_and_the_server_goes_on(server, tmp_path, monkeypatch):
    def refused(reason, why, request):
        with pytest.raises(RefusedError, match=why) as caught:
            look_from(SETTINGS, server.address, request)
        assert caught.value.reason == reason

    fill(tmp_path, 2, 5, query="another")
    refused("foreign", "belongs to another query", asked(2, "json", [(0, b"")]))
    refused("damaged", "There is no state in", asked(7, "json", [(0, b"")]))
    refused("other", "another query, generation or host", asked(0, "json", [(0, b"")], generation=1))
    monkeypatch.setattr(servers, "LOOKED_BYTES", 300)
    refused("large", "too large for an answer", asked(1, "keyed", [(3, KEY)]))
    path = store_path(tmp_path, 1) / "data.mdb"
    os.truncate(path, path.stat().st_size - 4096)
    refused("damaged", "is truncated", asked(1, "keyed", [(3, KEY)]))
    with pytest.raises(RefusedError, match="has no state of that worker"):  # and whoever pulls its bins goes elsewhere
        pulled(SETTINGS, server.address, Ticket("q", 2, A, 5, 1, (3,)), tmp_path / "target")
    assert look_from(SETTINGS, server.address, asked(0, "json", [(0, bytes(4))])).keys[0].entries


def test_looks_and_pulls_are_not_taken_for_each_other_nor_one_anothers_keys(server):
    request = asked(0, "json", [(0, bytes(4))])
    sealed = seal(request, SETTINGS.token)
    for wrong in (sealed.replace(b"[0,", b"[1,"), sealed[:32] + sealed[32:].replace(b'"keys"', b'"bins"')):
        with flight.FlightClient(server.address) as client, pytest.raises(flight.FlightUnauthorizedError):
            client.do_get(flight.Ticket(wrong)).read_all()
    with pytest.raises(RefusedError, match="was not made with this query's"):
        look_from(replace(SETTINGS, token=b"x" * 32), server.address, request)
    assert server.counts.now()["refused"] == {"token": 3}


def test_there_is_room_for_what_fits_and_not_for_a_byte_more(tmp_path):
    fill(tmp_path, 0, 5)
    with looking(store_path(tmp_path, 0)) as txn:
        keys = [(0, bytes(4)), (1, bytes(4))]
        one = len(b"\1\0\0" + bytes(4)) + len(b"0") + 4 + ENTRY_BYTES
        assert look(txn, "q", "json", keys, most=2 * one).keys[1].entries
        with pytest.raises(TooLargeError):
            look(txn, "q", "json", keys, most=2 * one - 1)


def test_an_answer_has_as_many_bytes_as_are_counted_however_long_the_key(tmp_path):
    long, number = b"k" * 50_000, 300
    head = naming.TIMERS + naming.key_part(long)
    with Store.open(tmp_path) as store, store.begin() as txn:
        state = BinState(txn, 8)
        state.create_entries(3, [(naming.own_timer_name(time, head), b"") for time in range(number)])
        state.write_sizes()
        write_meta(txn, Meta.new("q", 1, 4, 2))
    with looking(tmp_path) as txn:
        seen = look(txn, "q", "processor", [(3, long)], most=number * 200)
    _, *entries = answer_of(seen)
    assert sum(len(name) + len(value) for name, value in entries) < number * 100
    timers = seen.keys[0].opened("processor", long)
    assert [naming.timer_of(*timer) for timer in timers] == [(time, long) for time in range(number)]


def test_a_look_is_ended_between_any_few_hundred_entries(tmp_path):
    with Store.open(tmp_path) as store, store.begin() as txn:
        state = BinState(txn, 8)
        state.create_entries(2, sorted(naming.timer_name(n, b"%d" % n) for n in range(2000)))
        state.write_sizes()
        write_meta(txn, Meta.new("q", 1, 4, 2))
    calls = []

    def pace():
        calls.append(1)
        if len(calls) == 3:
            raise RefusedError("busy")

    with looking(tmp_path) as txn, pytest.raises(RefusedError):
        look(txn, "q", "keyed", [(2, b"7")], pace=pace)


@pytest.mark.parametrize("place", [1, 2])
def test_a_damaged_record_of_a_bin_hides_no_key(tmp_path, place):
    fill(tmp_path, 0, 5)
    path = store_path(tmp_path, 0) / "data.mdb"
    raw, wanted = bytearray(path.read_bytes()), bin_key(SIZE, 3)
    found = [n for n in range(len(raw)) if raw[n : n + 3] == wanted and raw[n - 2 : n] == b"\x03\x00"]
    for n in found:
        raw[n + place] ^= 0x40
    assert found
    path.write_bytes(raw)
    with looking(store_path(tmp_path, 0)) as txn, pytest.raises(CorruptStateError):
        look(txn, "q", "json", [(3, bytes(4))])


def test_a_refusal_leaves_the_connection_to_those_who_use_it(server):
    look_from(SETTINGS, server.address, asked(0, "json", [(0, bytes(4))]))
    before = dict(client._clients)
    with pytest.raises(RefusedError):
        look_from(SETTINGS, server.address, asked(7, "json", [(0, b"")]))
    assert before.items() <= client._clients.items()


def test_a_server_that_looks_for_others_says_so_before_it_is_taken_for_silent(server, monkeypatch):
    assert servers._TURN_S + servers._LOOK_S < 2 * client._PROMPT_S
    monkeypatch.setattr(servers, "_TURN_S", 0.01)
    for _ in range(servers._LOOKING):
        assert server._looking.acquire(blocking=False)
    with pytest.raises(RefusedError) as caught:
        look_from(SETTINGS, server.address, asked(0, "json", [(0, bytes(4))]))
    assert caught.value.reason == "busy"


def test_a_look_that_nobody_waits_for_or_that_takes_too_long_is_ended(monkeypatch):
    servers._paced(float("inf"), lambda: False)()
    for until, is_given_up, reason in ((float("inf"), True, "busy"), (0.0, False, "large")):
        with pytest.raises(RefusedError) as caught:
            servers._paced(until, lambda given_up=is_given_up: given_up)()
        assert caught.value.reason == reason


def test_a_request_that_asks_for_a_key_twice_is_refused():
    with pytest.raises(RefusedError):
        open_request(seal(asked(0, "json", [(0, b"a"), (0, b"a")]), SETTINGS.token), SETTINGS.token)


@given(st.data())
def test_a_bit_that_flips_on_the_way_is_found(data):
    entries = [stored_entry(3, b"k%d" % n, b"%d" % n) for n in range(2)]
    items = answer_of(Seen(5, 4, [KeyEntries(True, 0, entries[:1]), KeyEntries(True, 0, entries[1:])]))
    item, part = data.draw(st.integers(0, len(items) - 1)), data.draw(st.integers(0, 1))
    assume(items[item][part])
    flipped = bytearray(items[item][part])
    flipped[data.draw(st.integers(0, len(flipped) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    items[item] = (bytes(flipped), items[item][1]) if part == 0 else (items[item][0], bytes(flipped))
    with pytest.raises(CorruptStateError):
        _ = [found.opened("json", b"") for found in seen_of(items, 2).keys]


def header(text):
    return b"", checked(b"", text)


@pytest.mark.parametrize("change", [
    lambda items: items[:-1], lambda items: [*items, (b"x", b"y")], lambda _: [], lambda items: items[1:],
    lambda items: [header(b'{"epoch": 1, "begun": 0, "keys": [[true]]}'), *items[1:]],
    lambda items: [header(b'{"epoch": "1", "begun": 0, "keys": [[true, 0, 5]]}'), *items[1:]],
    lambda _: [header(b'{"epoch": 1, "keys": []}')], lambda items: [header(b"no JSON"), *items[1:]],
    lambda items: [(b"", items[0][1][4:]), *items[1:]],
])  # fmt: skip
def test_an_answer_that_is_not_whole_is_damage(server, tmp_path, change):
    with looking(store_path(tmp_path, 1)) as txn:
        items = answer_of(look(txn, "q", "keyed", [(3, KEY)]))
    assert len(seen_of(items, 1).keys[0].entries) == 5
    with pytest.raises(CorruptStateError, match="An answer about keys"):
        seen_of(change(items), 1)
