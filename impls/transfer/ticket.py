"""A request for bins, sealed with the token, and the Arrow batches that answer it."""

import hashlib
import hmac
import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import accumulate, pairwise

import numpy as np
import pyarrow as pa

from impls.errors import CorruptStateError, StateError
from impls.protocol.arrays import MAX_BINS
from impls.protocol.jsontext import from_text, to_text
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
}
PROOF = b"proof"  # of the answer's schema
_MAC_BYTES = 32
_TICKET_BYTES_MAX = 1 << 18
_WORKERS_MAX = 1 << 20


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


def seal(ticket: Ticket, token: bytes) -> bytes:
    """Returns a ticket as it travels."""
    body = to_text(asdict(ticket))
    return _mac(token, b"ask", body) + body


def open_ticket(raw: bytes, token: bytes) -> Ticket:
    """Returns the ticket that `seal` made with the same token; raises RefusedError for anything else."""
    if not _MAC_BYTES < len(raw) <= _TICKET_BYTES_MAX:
        raise RefusedError("malformed")
    mac, body = raw[:_MAC_BYTES], raw[_MAC_BYTES:]
    if not hmac.compare_digest(mac, _mac(token, b"ask", body)):
        raise RefusedError("token")
    try:
        data = from_text(body)
        ticket = Ticket(**(data | {"bins": tuple(data["bins"])}))
    except (ValueError, TypeError, KeyError) as error:
        raise RefusedError("malformed") from error
    numbers = (ticket.generation, ticket.epoch, ticket.worker, *ticket.bins)
    if not all(type(number) is int for number in numbers) or not 0 <= ticket.worker < _WORKERS_MAX:
        raise RefusedError("malformed")
    if len(set(ticket.bins)) < len(ticket.bins) or not all(0 <= bin_ < MAX_BINS for bin_ in ticket.bins):
        raise RefusedError("malformed")
    return ticket


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
