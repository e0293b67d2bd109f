"""Readers of the generators' streams, which share no code with what writes them."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from generators.spec import GeneratorError
from generators.stream import NUMBER_BYTES

RECORD_BYTES = 2 * NUMBER_BYTES
POWERS = 10 ** np.arange(NUMBER_BYTES - 1, -1, -1, dtype=np.int64)

_BOTH = {"type": str, "dateTime": int, "scheduled_us": int, "extra": str}
SCHEMA: dict[str, dict[str, type]] = {
    "person": {"id": int, "name": str, "emailAddress": str, "creditCard": str, "city": str, "state": str, **_BOTH},
    "auction": {
        "id": int, "itemName": str, "description": str, "initialBid": int, "reserve": int, "expires": int,
        "seller": int, "category": int, **_BOTH,
    },
    "bid": {"auction": int, "bidder": int, "price": int, **_BOTH},
}  # fmt: skip
_CHANNEL = {"channel": str, "url": str}


def decode(value: bytes) -> dict[str, Any]:
    """Returns the NEXMark event of a record value; raises GeneratorError for anything but one, field by field."""
    try:
        event = json.loads(value)
        fields = SCHEMA[event["type"]]
    except (ValueError, TypeError, KeyError):
        raise GeneratorError(f"A record of {len(value)} bytes is no NEXMark event: this is another stream.") from None
    if event["type"] == "bid" and "channel" in event:
        fields = {**fields, **_CHANNEL}
    if {name: type(field) for name, field in event.items()} != fields:
        raise GeneratorError(f"A record of type {event['type']} has other fields than that: this is another stream.")
    return dict(event)


def decode_block(values: Sequence[bytes]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns (keys, scheduled times in microseconds) of record values; raises GeneratorError for another form."""
    wrong = next((value for value in values if len(value) != RECORD_BYTES), None)
    if wrong is not None:
        raise GeneratorError(f"A key-count record has {RECORD_BYTES} bytes, not {len(wrong)}: this is another stream.")
    digits = np.frombuffer(b"".join(values), np.uint8).reshape(-1, 2, NUMBER_BYTES) - np.uint8(ord("0"))
    if (digits > 9).any():
        raise GeneratorError("A key-count record holds digits alone: this is another stream.")
    pairs = digits.astype(np.int64) @ POWERS
    return pairs[:, 0].copy(), pairs[:, 1].copy()
