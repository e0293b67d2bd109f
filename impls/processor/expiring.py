"""What has outlived its time to live is deleted, and the earliest timer or expiry of bins is noted."""

from collections.abc import Iterable

from impls.processor import names
from impls.processor.encoding import list_head
from impls.store.buffered import Buffered

__all__ = ["expire", "note_earliest"]


def expire(entries: Buffered, bins: Iterable[int], now: int) -> None:
    """Deletes what expires at `now`, ms, or before; what was renewed gets its expiry anew."""
    for bin_ in bins:
        for note, _ in entries.scan(bin_, names.EXPIRY, names.EXPIRY + names.time_bytes(now + 1)):
            entries.put(bin_, note, None)
            name = note[9:]
            if (raw := entries.get(bin_, name)) is not None:
                (_expire_items if name[:1] == names.LIST else _expire_row)(entries, bin_, name, raw, now=now)


def _expire_row(entries: Buffered, bin_: int, name: bytes, raw: bytes, *, now: int) -> None:
    """Deletes a value or a field, or notes when it is to be looked at again."""
    part = names.rest_of(name) if name[:1] == names.MAP else b""
    row = names.field_of(part, raw)[1] if part else raw
    expires = names.time_of(row)
    if expires <= now:
        entries.put(bin_, name, None)
        return
    entries.put(bin_, name, raw[: len(raw) - len(row)] + row[:8] + names.time_bytes(expires) + row[16:])
    entries.put(bin_, names.expiry_name(expires, name), b"")


def _expire_items(entries: Buffered, bin_: int, name: bytes, raw: bytes, *, now: int) -> None:
    """Deletes the items of a list that have expired; the others keep their order, and move up if one is between."""
    first, end = int.from_bytes(raw[:6], "big"), int.from_bytes(raw[6:12], "big")
    items = entries.scan(bin_, names.item_name(name, first), names.item_name(name, end))
    kept = [item for _, item in items if names.time_of(item) > now]
    for index in range(first, end - len(kept)):
        entries.put(bin_, names.item_name(name, index), None)
    for index, item in enumerate(kept, end - len(kept)):
        entries.put(bin_, names.item_name(name, index), item)
    if not kept:
        entries.put(bin_, name, None)
        return
    due = min(names.time_of(item) for item in kept)
    entries.put(bin_, name, list_head(end - len(kept), end) + names.time_bytes(due))
    entries.put(bin_, names.expiry_name(due, name), b"")


def note_earliest(entries: Buffered, bins: Iterable[int]) -> None:
    """Notes the earliest timer or expiry of bins, whose entries are stored."""
    state = entries.state
    for bin_ in sorted(bins):
        found = [
            state.first(bin_, names.TIMER, names.AFTER_TIMERS), state.first(bin_, names.EXPIRY, names.AFTER_EXPIRIES)
        ]  # fmt: skip
        state.set_earliest_timer(bin_, min((names.time_of(name[1:]) for name in found if name), default=None))
