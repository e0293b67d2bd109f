"""Pulls bins from another host's server, looks at keys there, and starts or finds the server of its own host."""

import hmac
import logging
import os
import queue
import socket
import subprocess
import sys
import threading
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import lmdb
import pyarrow as pa
from pyarrow import flight

from impls.errors import CorruptStateError
from impls.store.bins import BinArrival, open_size
from impls.store.lookup import Seen
from impls.transfer.owner import Owner
from impls.transfer.process import Charge, Places
from impls.transfer.settings import TLS_NAME, Transfer
from impls.transfer.ticket import (
    PROOF,
    REASONS,
    KeyRequest,
    RefusedError,
    Ticket,
    is_size,
    items_of,
    proof_of,
    requests_of,
    runs_of,
    seal,
    seen_of,
)

_AHEAD = 4  # messages that wait to be installed
_CLIENTS_MAX = 16
_POLL_S = 0.1
_PROMPT_S = 1.5  # whoever looks at keys waits so long for a connection, then for a turn, then for each message
_LOOK_S = 6.0  # for a whole answer about keys, which has 16 MiB at most


class SilentError(CorruptStateError):
    """A host has not answered in time, which it would not do for others of its workers either."""


_Server = tuple[str, Transfer]
_clients: OrderedDict[_Server, flight.FlightClient] = OrderedDict()
_clients_lock = threading.Lock()


def fetch(
    transfer: Transfer, address: str, ticket: Ticket, txn: lmdb.Transaction, *, expected_bytes: int
) -> Iterator[tuple[int, int]]:
    """Pulls a ticket's bins into a transaction and yields (bin, bytes) of each when it is there, in the ticket's order.

    Raises RefusedError when the server refuses, and CorruptStateError when it is not there, is none with the query's
    token, is too slow or sends what is damaged or not all: what has not been yielded has to come from elsewhere.
    """
    left = list(ticket.bins)
    arrival: BinArrival | None = None
    for items in _Reader(transfer, address, ticket, transfer.deadline_s(expected_bytes)):
        for run in runs_of(items):
            if not left:
                raise CorruptStateError(f"Host {ticket.host} sends more than was asked for.")
            arrival = arrival or BinArrival(txn, left[0])
            if not is_size(run):
                arrival.put(run)
                continue
            bin_, (entries, size) = open_size(*run[0])
            if bin_ != left.pop(0) or len(run) > 1:
                raise CorruptStateError(f"Host {ticket.host} sends bins out of order.")
            arrival.end(entries, size)
            arrival = None
            yield bin_, size
    if left:
        raise CorruptStateError(f"Host {ticket.host} sends {len(left)} bins less than was asked for.")


def look_from(transfer: Transfer, address: str, asked: KeyRequest) -> Seen:
    """Returns what a worker's environment on another host has of keys; may be called from any thread.

    Many keys take several requests, between which the worker may commit.

    Raises RefusedError when the server refuses, SilentError when the host does not answer, and CorruptStateError as
    `fetch` does.
    """
    seen: list[Seen] = []
    transfer = replace(transfer, connect_s=_PROMPT_S, busy_s=_PROMPT_S, stall_s=_PROMPT_S)
    for part in requests_of(asked):
        messages = list(_Reader(transfer, address, part, _LOOK_S))
        seen.append(seen_of([item for items in messages for item in items], len(part.keys)))
    keys = [found for one in seen for found in one.keys]
    return Seen(min(one.epoch for one in seen), min(one.begun for one in seen), keys)


class _Reader:
    """The messages of one pull, read by a thread of its own a few ahead; iterating ends or raises in time."""

    def __init__(self, transfer: Transfer, address: str, ticket: Ticket | KeyRequest, deadline_s: float):
        self._transfer, self._address, self._ticket, self._deadline_s = transfer, address, ticket, deadline_s
        self._messages: queue.Queue[Any] = queue.Queue(_AHEAD)
        self._stop = threading.Event()
        self._reader: flight.FlightStreamReader | None = None

    def __iter__(self) -> Iterator[list[tuple[bytes, bytes]]]:
        host, stall_s = self._ticket.host, self._transfer.stall_s
        client = _client(self._transfer, self._address, host)
        thread = threading.Thread(target=self._read, args=(client,), name="pull", daemon=True)
        thread.start()
        whole = False  # or refused: then the connection is sound, too, and others use it
        try:
            wait_s = self._transfer.busy_s + stall_s
            while True:
                try:
                    message = self._messages.get(timeout=wait_s)
                except queue.Empty:
                    raise SilentError(f"Host {host} has sent nothing for {wait_s:g} s.") from None
                if message is None:
                    whole = True
                    return
                if isinstance(message, Exception):
                    meant = _meaning(message, host)
                    whole = isinstance(meant, RefusedError)
                    raise meant
                yield items_of(message)
                wait_s = stall_s
        finally:
            self._stop.set()
            if not whole:
                if self._reader is not None:
                    self._reader.cancel()
                _forget(self._transfer, self._address)

    def _read(self, client: flight.FlightClient) -> None:
        try:
            sealed = seal(self._ticket, self._transfer.token)
            self._reader = client.do_get(flight.Ticket(sealed), flight.FlightCallOptions(timeout=self._deadline_s))
            self._check_proof((self._reader.schema.metadata or {}).get(PROOF, b""), sealed)
            while not self._stop.is_set():
                self._put(self._reader.read_chunk().data)
        except StopIteration:
            self._put(None)
        except Exception as error:
            self._put(error)

    def _check_proof(self, proof: bytes, sealed: bytes) -> None:
        if not hmac.compare_digest(proof, proof_of(sealed, self._transfer.token)):
            raise CorruptStateError(f"What answers at {self._address} is not a server of this query.")

    def _put(self, message: pa.RecordBatch | Exception | None) -> None:
        while not self._stop.is_set():
            try:
                self._messages.put(message, timeout=_POLL_S)
            except queue.Full:
                continue
            return


def _meaning(error: Exception, host: str) -> Exception:
    """Returns what an error of the connection means to the worker."""
    if isinstance(error, flight.FlightUnauthorizedError):
        reason = (error.extra_info or b"").decode(errors="replace")
        if reason in REASONS:
            return RefusedError(reason, str(error).partition(". Detail:")[0])
    if isinstance(error, pa.ArrowException | OSError):
        return CorruptStateError(f"Host {host} does not hand over bins: {str(error).partition('. gRPC')[0]}.")
    return error


def _client(transfer: Transfer, address: str, host: str) -> flight.FlightClient:
    """Returns a connection, kept from pull to pull."""
    key, parts = (address, transfer), urlsplit(address)
    try:  # gRPC itself would wait for 20 s for a host that is cut off
        socket.create_connection((str(parts.hostname), int(parts.port or 0)), transfer.connect_s).close()
        with _clients_lock:
            return _kept(key)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise SilentError(f"Host {host} does not answer at {address}: {error}.") from error


def _kept(key: _Server) -> flight.FlightClient:
    """Returns the connection to a server, new if there is none.

    One that is not kept any more is closed by the last thread that uses it.
    """
    if key in _clients:
        _clients.move_to_end(key)
        return _clients[key]
    address, transfer = key
    tls: dict[str, Any] = {}
    if transfer.certificate:
        tls = {
            "tls_root_certs": transfer.certificate,
            "cert_chain": transfer.certificate,
            "private_key": transfer.key,
            "override_hostname": TLS_NAME,
        }
    client = _clients[key] = flight.FlightClient(address, **tls)
    while len(_clients) > _CLIENTS_MAX:
        _clients.popitem(last=False)
    return client


def _forget(transfer: Transfer, address: str) -> None:
    with _clients_lock:
        _clients.pop((address, transfer), None)


_LOG = logging.getLogger(__package__)
_started: list["subprocess.Popen[bytes]"] = []  # so that they are waited for when they end before this process


def offer(transfer: Transfer, *, query: str, generation: int, host: str, state_dir: str) -> str:
    """Returns the address of this host's server for a query, "" while there is none; starts one then, without waiting.

    A host that cannot start one has none: others then take its bins from the checkpoint.
    """
    places = Places(Path(state_dir), query, generation)
    try:
        lock = places.take()
    except OSError:
        return ""
    if lock is None:
        return str(places.read().get("address", ""))
    try:
        charge = Charge(transfer, query, generation, host, state_dir, Owner.of_this_process())
        _start(charge, places, lock)
    except OSError:
        return ""
    finally:
        os.close(lock)  # the process has its own, for as long as it lives
    return ""


def _start(charge: Charge, places: Places, lock: int) -> None:
    _started[:] = [process for process in _started if process.poll() is None]
    if words := places.last_words():
        _LOG.warning("The process that hands out bins of host %s is started again: %s", charge.host, words)
    log = os.open(places.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "impls.transfer.process"],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path)), "GRPC_VERBOSITY": "NONE"},
            pass_fds=(lock,),
            start_new_session=True,
        )
    finally:
        os.close(log)
    _started.append(process)
    assert process.stdin is not None
    with process.stdin as stdin:
        stdin.write(charge.to_json())
