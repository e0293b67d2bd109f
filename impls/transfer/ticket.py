"""Requests for bins and for the state of keys, sealed with the token, and the Arrow batches that answer them."""

import hashlib
import hmac
import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import accumulate, islice, pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from impls.errors import CorruptStateError, StateError, UsageError
from impls.protocol.arrays import MAX_BINS
from impls.protocol.jsontext import from_text, to_text
from impls.store.checked import checked, open_record
from impls.store.lookup import Key, KeyEntries, Seen
from impls.store.tables import SIZE

REASONS = {
    "method": "it only hands out bins",
    "malformed": "the request cannot be read",
    "token": "the request was not made with this query's and generation's secret",
    "other": "the request is for another query, generation or host",
    "absent": "it has no state of that worker",
    "foreign": "its state is of another query",
    "old": "its state is older than the epoch before",
    "ahead": "its state is ahead of the epoch: this attempt is outdated",
    "damaged": "its state is damaged",
    "busy": "it serves too many others",
    "large": "the state that is asked for is too large for an answer",
}
PROOF = b"proof"  # of the answer's schema
_MAC_BYTES = 32
_TICKET_BYTES_MAX = 1 << 18
LOOKED_BYTES = 16 << 20  # most that an answer about keys has: the memory of the process that answers is limited
_WORKERS_MAX = 1 << 20
_KEYS_BYTES, _KEY_BYTES = _TICKET_BYTES_MAX - 4096, 16  # of the keys of a request; of a key beside its digits


class RefusedError(Exception):
    """A request is not served, for a reason of REASONS."""

    def __init__(self, reason: str, detail: str = ""):
        super().__init__(detail or REASONS[reason])
        self.reason = reason

    @property
    def kind(self) -> type[StateError]:
        """What it is to the puller: only where the source is ahead there is nothing to be had elsewhere either."""
        return StateError if self.reason == "ahead" else CorruptStateError


@dataclass(frozen=True, slots=True)
class Ticket:
    """What is asked for.

    Attributes:
        query, generation: whose state.
        host: that is asked, so that no other one answers.
        epoch: in which the bins are pulled; the source is to be at its end or at that of the one before.
        worker: whose environment has the bins.
        bins: in the order in which they are to come.
        nonce: random, so that each request has its own proof.
    """

    query: str
    generation: int
    host: str
    epoch: int
    worker: int
    bins: tuple[int, ...]
    nonce: str = field(default_factory=lambda: secrets.token_hex(8))


@dataclass(frozen=True, slots=True)
class KeyRequest:
    """A request for the state of keys, see `impls.store.lookup.look`.

    Attributes:
        query, generation: whose state.
        host: that is asked, so that no other one answers.
        worker: whose environment is looked at.
        values: what entries are.
        keys: bin and name of each key.
        nonce: random, so that each request has its own proof.
    """

    query: str
    generation: int
    host: str
    worker: int
    values: str
    keys: tuple[Key, ...]
    nonce: str = field(default_factory=lambda: secrets.token_hex(8))


def requests_of(look: KeyRequest) -> Iterator[KeyRequest]:
    """Yields requests that ask for the keys of one, as many as fit into each.

    Raises UsageError for a key that is too long for any.
    """
    keys: list[Key] = []
    room = _KEYS_BYTES
    for key in look.keys:
        size = 2 * len(key[1]) + _KEY_BYTES
        if size > _KEYS_BYTES:
            raise UsageError(f"A key of {len(key[1]):,} bytes is too long for a question to another host.")
        if size > room:
            yield replace(look, keys=tuple(keys), nonce=secrets.token_hex(8))
            keys, room = [], _KEYS_BYTES
        keys.append(key)
        room -= size
    yield replace(look, keys=tuple(keys), nonce=secrets.token_hex(8))


def seal(asked: Ticket | KeyRequest, token: bytes) -> bytes:
    """Returns a request as it travels."""
    data = {one.name: getattr(asked, one.name) for one in fields(asked)}
    if isinstance(asked, KeyRequest):
        data["keys"] = [[bin_, key.hex()] for bin_, key in asked.keys]
    body = to_text(data)
    return _mac(token, _ASK[type(asked)], body) + body


_ASK: dict[type[Ticket | KeyRequest], bytes] = {Ticket: b"ask", KeyRequest: b"look"}


def open_request(raw: bytes, token: bytes) -> Ticket | KeyRequest:
    """Returns the request that `seal` made with the same token; raises RefusedError for anything else."""
    if not _MAC_BYTES < len(raw) <= _TICKET_BYTES_MAX:
        raise RefusedError("malformed")
    mac, body = raw[:_MAC_BYTES], raw[_MAC_BYTES:]
    kind = next((kind for kind, what in _ASK.items() if hmac.compare_digest(mac, _mac(token, what, body))), None)
    if kind is None:
        raise RefusedError("token")
    try:
        asked = _ticket(from_text(body)) if kind is Ticket else _look(from_text(body))
    except (ValueError, TypeError, KeyError) as error:
        raise RefusedError("malformed") from error
    if type(asked.generation) is not int or type(asked.worker) is not int or not 0 <= asked.worker < _WORKERS_MAX:
        raise RefusedError("malformed")
    bins = asked.bins if isinstance(asked, Ticket) else [bin_ for bin_, _ in asked.keys]
    if not all(type(bin_) is int and 0 <= bin_ < MAX_BINS for bin_ in bins):
        raise RefusedError("malformed")
    return asked


def _ticket(data: dict[str, Any]) -> Ticket:
    ticket = Ticket(**(data | {"bins": tuple(data["bins"])}))
    if type(ticket.epoch) is not int or len(set(ticket.bins)) < len(ticket.bins):
        raise ValueError("no epoch, or a bin twice")
    return ticket


def _look(data: dict[str, Any]) -> KeyRequest:
    look = KeyRequest(**(data | {"keys": tuple((bin_, bytes.fromhex(key)) for bin_, key in data["keys"])}))
    if type(look.values) is not str or len(set(look.keys)) < len(look.keys):
        raise TypeError("no form of values, or a key twice")
    return look


def proof_of(raw: bytes, token: bytes) -> bytes:
    """Returns what only a server with the token can answer to a sealed ticket, as hexadecimal digits."""
    return _mac(token, b"answer", raw).hex().encode()


def _mac(token: bytes, what: bytes, body: bytes) -> bytes:
    return hmac.new(token, what + body, hashlib.sha256).digest()


SCHEMA = pa.schema([pa.field("name", pa.large_binary(), False), pa.field("value", pa.large_binary(), False)])


def packed(items: Iterable[tuple[bytes, bytes]], limit: int) -> Iterator[pa.RecordBatch]:
    """Yields batches of about `limit` bytes with all items; one larger than that comes alone.

    One item after the other, so that no more than a batch and an item are in memory.
    """
    names: list[bytes] = []
    values: list[bytes] = []
    size = 0
    for name, value in items:
        size += len(name) + len(value)
        if size > limit and names:
            yield batch_of(names, values)
            names, values, size = [], [], len(name) + len(value)
        names.append(name)
        values.append(value)
    if names:
        yield batch_of(names, values)


def batch_of(names: Sequence[bytes], values: Sequence[bytes]) -> pa.RecordBatch:
    """Returns a batch with items."""
    return pa.RecordBatch.from_arrays([_column(names), _column(values)], schema=SCHEMA)


def _column(values: Sequence[bytes]) -> pa.Array:
    offsets = np.fromiter(accumulate(map(len, values), initial=0), np.int64, len(values) + 1)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(values))]
    return pa.Array.from_buffers(pa.large_binary(), len(values), buffers, null_count=0)


def items_of(batch: pa.RecordBatch) -> list[tuple[bytes, bytes]]:
    """Returns a batch's items; raises CorruptStateError when it is none of `batch_of`."""
    try:
        batch.validate(full=True)
    except pa.ArrowInvalid as error:
        raise CorruptStateError(f"A message with bins is damaged: {error}.") from error
    if not batch.schema.equals(SCHEMA) or any(column.null_count for column in batch.columns):
        raise CorruptStateError("A message with bins has the wrong columns.")
    return list(zip(*map(_values, batch.columns), strict=True))


def _values(column: pa.Array) -> list[bytes]:
    _, offsets, data = column.buffers()
    if not len(column):
        return []
    ends: list[int] = np.frombuffer(offsets, np.int64)[column.offset : column.offset + len(column) + 1].tolist()
    raw = b"" if data is None else data.to_pybytes()
    return [raw[begin:end] for begin, end in pairwise(ends)]


def answer_of(seen: Seen) -> list[tuple[bytes, bytes]]:
    """Returns what was seen as items: a header, and the entries of all keys, each with a checksum."""
    keys = [[one.there, one.shape, len(one.entries)] for one in seen.keys]
    header = to_text({"epoch": seen.epoch, "begun": seen.begun, "keys": keys})
    return [(b"", checked(b"", header)), *(entry for one in seen.keys for entry in one.entries)]


def seen_of(items: Sequence[tuple[bytes, bytes]], keys: int) -> Seen:
    """Returns what `answer_of` was given for so many keys; raises CorruptStateError where items are no such answer.

    The entries are as they are stored: whoever opens them checks them.
    """
    try:
        (name, raw), *entries = items
        header, left = from_text(open_record(name, raw)), iter(entries)
        found = [KeyEntries(there, shape, list(islice(left, number))) for there, shape, number in header["keys"]]
        epoch, begun, numbers = header["epoch"], header["begun"], [number for *_, number in header["keys"]]
    except (ValueError, TypeError, KeyError, CorruptStateError) as error:
        raise CorruptStateError(f"An answer about keys is damaged: {error}.") from error
    if {type(part) for part in (epoch, begun, *numbers)} - {int}:
        raise CorruptStateError("An answer about keys has an epoch or a number that is none.")
    if (len(found), sum(numbers)) != (keys, len(entries)):
        raise CorruptStateError("An answer about keys has another number of keys, or of entries.")
    return Seen(epoch, begun, found)


def runs_of(items: Sequence[tuple[bytes, bytes]]) -> Iterator[Sequence[tuple[bytes, bytes]]]:
    """Yields items in lists that are of one bin and table each."""
    heads = np.array([name[:3] for name, _ in items], "S3")
    cuts = [0, *(np.flatnonzero(heads[1:] != heads[:-1]) + 1).tolist(), len(items)]
    for begin, end in pairwise(cuts):
        if begin < end:
            yield items[begin:end]


def is_size(run: Sequence[tuple[bytes, bytes]]) -> bool:
    """Returns whether a run is a size record, with which a bin ends."""
    return run[0][0][:1] == SIZE
