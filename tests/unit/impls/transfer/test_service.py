"""The life of a host's server, what it uses, and TLS."""

import fcntl
import os
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pyarrow as pa
import pytest
from clocks import set_clock
from hosts import A, until
from pyarrow import flight
from served import EPOCH, SETTINGS, Host, fill, pulled

from impls.errors import CorruptStateError, UsageError
from impls.transfer.client import offer
from impls.transfer.process import Places
from impls.transfer.server import BinServer
from impls.transfer.settings import TLS_NAME, Transfer, certificate_of
from impls.transfer.ticket import seal

ROOT = Path(__file__).parents[4]
DENSE = 3_200_000  # slots of a bin: 25 MB, 200 MB in 8 bins


def offered(folder, generation=2, transfer=SETTINGS, host=A):
    return offer(transfer, query="q", generation=generation, host=host, state_dir=str(folder))


def servers(folder):
    """Processes of this one that serve a folder's bins, by what they have open."""
    found = psutil.Process().children()
    return [p for p in found if any(str(folder) in file.path for file in p.open_files())]


def test_however_many_tasks_ask_at_once_there_is_one_server(tmp_path):
    fill(tmp_path, 0, EPOCH)
    tasks = [threading.Thread(target=offered, args=(tmp_path,)) for _ in range(16)]
    for task in tasks:
        task.start()
    for task in tasks:
        task.join()
    address = until("the server", lambda: offered(tmp_path))
    assert len(servers(tmp_path)) == 1
    assert offered(tmp_path) == address


@pytest.mark.lengthy
def test_a_server_ends_with_the_process_that_started_it(tmp_path):
    fill(tmp_path, 0, EPOCH)
    script = f"""
import sys, time
sys.path.insert(0, {str(ROOT)!r})
from impls.transfer.client import offer
from impls.transfer.settings import Transfer
while True:
    print(offer(Transfer.new(), query="q", generation=2, host={A!r}, state_dir={str(tmp_path)!r}), flush=True)
    time.sleep(0.05)
"""
    task = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.DEVNULL)
    try:
        pid = until("the server", lambda: Places(tmp_path, "q", 2).read().get("pid"))
        assert psutil.pid_exists(pid)
    finally:
        task.kill()
        task.wait()
    until("its end", lambda: not psutil.pid_exists(pid))


def test_a_later_generation_replaces_a_server_and_its_files(tmp_path):
    fill(tmp_path, 0, EPOCH)
    until("the first server", lambda: offered(tmp_path, 2))
    [first] = servers(tmp_path)
    later = until("the second one", lambda: offered(tmp_path, 3, Transfer.new()))
    until("the end of the first", lambda: not first.is_running() or first.status() == psutil.STATUS_ZOMBIE)
    assert later == Places(tmp_path, "q", 3).read()["address"]
    assert {path.name.rpartition("-")[2] for path in tmp_path.glob(".transfer-*")} == {"3.json", "3.lock", "3.log"}


def is_free(lock):
    """Whether no process has a lock file."""
    with lock.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def test_a_server_that_cannot_listen_says_so_and_is_tried_ever_more_rarely(tmp_path, monkeypatch, caplog):
    fill(tmp_path, 0, EPOCH)
    places, clock = Places(tmp_path, "q", 2), set_clock(monkeypatch, "impls.transfer.process")
    tries, noted = [], ""
    for _ in range(40):  # seconds
        assert offered(tmp_path, host="192.0.2.1") == ""
        if (note := places.lock.read_text()) != noted:  # a process may be too young to be seen
            noted = note
            tries.append(clock.now - 1000)
            until("its last words", lambda: places.last_words().startswith("Nothing can listen at 192.0.2.1"))
            until("its end", lambda: is_free(places.lock))
        clock.now += 1
    assert tries == [0, 6, 18]
    assert "is started again: Nothing can listen at 192.0.2.1, by which Spark knows this host" in caplog.text


@pytest.mark.lengthy
def test_a_server_ends_when_no_task_asks_for_it_and_stays_while_tasks_are_rare(tmp_path):
    fill(tmp_path, 0, EPOCH)
    settings = replace(SETTINGS, unused_s=1.0)
    until("the server", lambda: offered(tmp_path, transfer=settings))
    [first] = servers(tmp_path)
    since = time.monotonic()
    while time.monotonic() < since + 3:
        assert offered(tmp_path, transfer=settings), "a task asks four times a second"
        time.sleep(0.25)
    first.wait(30)
    lock = Places(tmp_path, "q", 2).lock
    os.utime(lock, (lock.stat().st_atime, lock.stat().st_mtime - 7200))  # as if the next epoch came two hours later
    until("another one", lambda: offered(tmp_path, transfer=settings))
    [second] = servers(tmp_path)
    with pytest.raises(psutil.TimeoutExpired):
        second.wait(4)


def test_a_folder_with_another_package_of_that_name_is_not_taken_for_it(tmp_path, monkeypatch):
    """`python -m` would look where the task runs first."""
    fill(tmp_path, 0, EPOCH)
    (tmp_path / "impls").mkdir()
    (tmp_path / "impls" / "__init__.py").write_text("")
    monkeypatch.chdir(tmp_path)
    assert until("the server", lambda: offered(tmp_path))


@pytest.mark.lengthy
def test_a_server_needs_little_memory_however_much_it_serves(tmp_path):
    host = Host(tmp_path / A, dense=DENSE)
    before = host.memory()
    assert host.pull(tmp_path / "target") > 200_000_000
    assert host.memory() - before < 64 << 20


@pytest.mark.lengthy
def test_pullers_that_do_not_read_hold_little_memory_and_others_are_told_that_it_is_busy(tmp_path):
    host = Host(tmp_path / A, dense=DENSE, transfer=replace(SETTINGS, streams=4, busy_s=0.3))
    before, held = host.memory(), []
    with flight.FlightClient(host.address) as client:
        for _ in range(4):
            held.append(client.do_get(flight.Ticket(seal(host.ticket(), SETTINGS.token))))
            held[-1].read_chunk()
        with pytest.raises(flight.FlightUnauthorizedError, match="too many others"):
            host.ask(seal(host.ticket(), SETTINGS.token))
        assert host.memory() - before < 64 << 20
        for reader in held:
            reader.cancel()
    until("the count", lambda: host.told["failed"] == 4)
    assert (host.told["refused"], host.told["most"]) == ({"busy": 1}, 4)
    assert host.pull(tmp_path / "target") > 200_000_000


@pytest.mark.lengthy
def test_a_puller_that_stopped_is_given_up_and_its_place_is_free(tmp_path):
    fill(tmp_path, 0, EPOCH - 1, dense=DENSE)
    settings = replace(SETTINGS, streams=1, busy_s=0.3)
    with BinServer(settings, query="q", generation=2, host=A, state_dir=tmp_path) as server:
        ticket = Host.ticket(Host.__new__(Host))
        with flight.FlightClient(server.address) as client:
            reader = client.do_get(flight.Ticket(seal(ticket, SETTINGS.token)))
            reader.read_chunk()
            assert server.give_up_idle() == 0
            until("idleness", lambda: server.give_up_idle(0.0) == 1)
            assert pulled(settings, server.address, replace(ticket, nonce="b"), tmp_path / "target") > 200_000_000
            with pytest.raises(flight.FlightUnauthorizedError, match="took too long"):
                reader.read_all()


def test_a_puller_that_goes_away_before_the_first_message_leaves_no_place_taken(tmp_path):
    host = Host(tmp_path / A, transfer=replace(SETTINGS, streams=1, busy_s=5.0))
    for _ in range(10):
        with flight.FlightClient(host.address) as client:
            client.do_get(flight.Ticket(seal(host.ticket(), SETTINGS.token))).cancel()
    assert host.pull(tmp_path / "target") > 0


@pytest.fixture(scope="module")
def material():
    return certificate_of("auto")


def test_bins_move_over_tls_and_nobody_without_the_certificate_gets_that_far(tmp_path, material):
    host = Host(tmp_path / A, transfer=Transfer.new(*material))
    assert host.address.startswith("grpc+tls://")
    assert host.pull(tmp_path / "target") == 8 * 200 * 5
    sealed = seal(host.ticket(), host.transfer.token)
    other, key = certificate_of("auto")
    certificate = material[0]
    for options in (
        {"disable_server_verification": True},
        {"tls_root_certs": certificate, "override_hostname": TLS_NAME},
        {"tls_root_certs": certificate, "cert_chain": other, "private_key": key, "override_hostname": TLS_NAME},
    ):
        with pytest.raises((pa.ArrowException, OSError)):
            host.ask(sealed, **options)
    plain = replace(host.transfer, certificate=b"", key=b"")
    with pytest.raises(CorruptStateError):
        pulled(plain, host.address.replace("tls", "tcp"), host.ticket(), tmp_path / "plain")
    assert host.told["refused"] == {}
    assert host.pull(tmp_path / "again") == 8 * 200 * 5


def test_a_puller_talks_only_to_a_server_with_the_querys_certificate(tmp_path, material):
    host = Host(tmp_path / A, transfer=Transfer.new(*material))
    mine = Transfer.new(*certificate_of("auto"))
    with pytest.raises(CorruptStateError, match="does not hand over bins"):
        pulled(mine, host.address, host.ticket(), tmp_path / "target")


def test_a_certificate_comes_from_a_file_or_a_sentence_says_what_is_wrong(tmp_path, material):
    file = tmp_path / "both.pem"
    file.write_bytes(material[1] + material[0])
    assert certificate_of(str(file)) == material
    assert certificate_of("none") == (b"", b"")
    file.write_bytes(material[0])
    with pytest.raises(UsageError, match="has not both a certificate and a private key"):
        certificate_of(str(file))
    with pytest.raises(UsageError, match=r"cannot be read: No such file"):
        certificate_of(str(tmp_path / "none.pem"))


def test_without_openssl_a_sentence_says_what_to_do(monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UsageError, match="install openssl"):
        certificate_of("auto")
