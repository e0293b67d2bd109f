"""The request for bins: what is asked for, sealed with the token, which itself never travels."""

import hashlib
import hmac
import secrets
from dataclasses import asdict, dataclass, field

from impls.errors import CorruptStateError, StateError
from impls.protocol.bins import MAX_BINS
from impls.protocol.jsontext import from_text, to_text

__all__ = ["PROOF", "REASONS", "RefusedError", "Ticket", "open_ticket", "proof_of", "seal"]

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
