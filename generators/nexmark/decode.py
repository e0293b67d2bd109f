"""A reader of the stream in plain Python, which shares no code with what writes it."""

import json
from typing import Any

from generators.errors import GeneratorError

__all__ = ["SCHEMA", "decode"]

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
    """Returns the event of a record value; raises GeneratorError for anything but one, field by field."""
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
