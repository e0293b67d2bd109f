"""A lock, a turn or a descriptor does not stay with who has failed."""

import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from served import BINS, EPOCH, SETTINGS, fill, pulled

from impls.store.environment import Store
from impls.transfer.client import fetch
from impls.transfer.process import Full, Places, data_bytes
from impls.transfer.server import BinServer
from impls.transfer.ticket import RefusedError, Ticket

FDS = Path("/proc/self/fd")
LOOPBACK = "127.0.0.1"
TICKET = Ticket("q", 2, LOOPBACK, EPOCH, 0, tuple(range(BINS)))
ONE_AT_A_TIME = replace(SETTINGS, streams=1, busy_s=0.3)


@pytest.fixture
def server(tmp_path):
    fill(tmp_path / "host", 0, EPOCH - 1)
    with BinServer(ONE_AT_A_TIME, query="q", generation=2, host=LOOPBACK, state_dir=tmp_path / "host") as made:
        yield made


@pytest.mark.parametrize("note", [b"", b"12.5", b"12.5 one 0.0", b"\xff\xfe", b"1 2 3 4"])
def test_a_torn_note_in_the_lock_is_none_and_the_lock_is_taken_and_freed(tmp_path, note):
    places = Places(tmp_path, "q", 2)
    places.lock.write_bytes(note)
    fd = places.take()
    assert fd is not None
    assert places.take() is None, "a server has it"
    assert places.came_up() >= 0
    os.close(fd)


def test_a_lock_that_cannot_be_written_stays_with_nobody(tmp_path, monkeypatch):
    places = Places(tmp_path, "q", 2)
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        with pytest.raises(OSError, match="No space left"):
            places.take()
    assert not _open(places.lock), "other threads of this process may open and close what else they like"
    fd = places.take()
    assert fd is not None
    assert _open(places.lock) == [fd]
    os.close(fd)


def _open(path):
    # A descriptor that another thread closes meanwhile is not one of this path.
    return [int(fd.name) for fd in FDS.iterdir() if os.path.realpath(fd) == str(path.resolve())]


def test_an_environment_that_cannot_be_closed_does_not_keep_its_turn(tmp_path, server, monkeypatch):
    close = Store.close

    def fails_once(store):
        if threading.current_thread() is threading.main_thread():
            return close(store)  # the puller's
        monkeypatch.setattr(Store, "close", close)
        close(store)
        raise OSError("the disk is gone")

    monkeypatch.setattr(Store, "close", fails_once)
    for target in ("first", "second"):
        with Store.open(tmp_path / target) as store, store.begin() as txn:
            fetched = list(fetch(ONE_AT_A_TIME, server.address, TICKET, txn, expected_bytes=1 << 20))
            assert len(fetched) == BINS


def test_an_environment_that_cannot_be_opened_is_refused_with_a_reason(tmp_path, server, monkeypatch):
    opens = Store.open

    def no_descriptors(path, **how):
        if how.get("readonly"):
            raise OSError(24, "Too many open files")
        return opens(path, **how)

    with monkeypatch.context() as patch:
        patch.setattr(Store, "open", staticmethod(no_descriptors))
        with pytest.raises(RefusedError, match="Too many open files"):
            pulled(ONE_AT_A_TIME, server.address, TICKET, tmp_path / "first")
    assert server.counts.now()["refused"] == {"damaged": 1}
    assert pulled(ONE_AT_A_TIME, server.address, TICKET, tmp_path / "second") > 0


def test_a_server_whose_memory_is_full_and_stays_so_ends_and_one_whose_memory_was_full_goes_on():
    full = Full(1000)
    looks = [999] * 5 + [900] + [999] * 6
    assert [full.is_over(used) for used in looks] == [False] * 11 + [True]
    assert 1 << 20 < data_bytes() < 1 << 40
