"""Names of a key's entries in its bin: of its value, list, map, timers and times to live.

A name is a family (1 byte), the name of a state variable with its length (1 byte), the key, and what the family adds:
the index of a list's item (6 bytes), the key of a map's field. A timer's is its time and the key, so that those that
are due are one range. In names the digest of a key of more than 150 bytes stands for it; then the key is the value of
a timer, and stands in front of a value, a list's bounds, and a field's value. Times sort as bytes.
"""

import hashlib
from collections.abc import Iterable

from impls.errors import UsageError
from impls.store.entries import in_front, split
from impls.store.state import BinState

TIMER, VALUE, LIST, MAP, EXPIRY, TIMERS, ITEM = (bytes([family]) for family in range(7))
FRONTED = (VALUE, LIST, MAP)
"""Families whose values have a long grouping key in front."""
_AFTER = {TIMER: VALUE, EXPIRY: TIMERS}  # above all timers, above all expiries
_KEY_MAX, _LABEL_MAX = 150, 100
_BIAS = 1 << 63
_DIGEST, _DIGESTED = 32, 0xFFFF


class VariableNameError(UsageError):
    """The name of a state variable is too long, which no record is to blame for."""


def label_part(variable: str) -> bytes:
    """Returns the part of a name that says whose entry it is; raises VariableNameError above 100 bytes."""
    label = variable.encode()
    if len(label) > _LABEL_MAX:
        raise VariableNameError(f"The name of the state variable {variable[:20]}... is longer than {_LABEL_MAX} bytes.")
    return bytes([len(label)]) + label


def label_of(name: bytes) -> str:
    """Returns the name of the variable whose entry has a name."""
    return name[2 : 2 + name[1]].decode()


def key_part(key: bytes) -> bytes:
    """Returns the part of a name for a grouping key; no other key's begins with it."""
    if len(key) <= _KEY_MAX:
        return len(key).to_bytes(2, "big") + key
    return _DIGESTED.to_bytes(2, "big") + _digest_of(key)


def key_front(key: bytes) -> bytes:
    """Returns what the values of a grouping key's entries begin with, those of items and timers aside."""
    return b"" if len(key) <= _KEY_MAX else in_front(key)


def field_part(key: bytes) -> tuple[bytes, bytes]:
    """Returns the part of a name for the key of a map's field, and what stands in front of its value."""
    return (b"\0" + key, b"") if len(key) <= _KEY_MAX else (b"\1" + _digest_of(key), in_front(key))


def field_of(part: bytes, value: bytes) -> tuple[bytes, bytes]:
    """Returns (key of the field, its value) of the part of a name and what is stored behind the grouping key."""
    return (part[1:], value) if part[:1] == b"\0" else split(value)


def front_of(name: bytes, value: bytes) -> bytes:
    """Returns what stands in front of the value of a variable's entry: long keys, the grouping one and the field's."""
    if name[:1] not in FRONTED:
        return b""
    _, digested, rest = key_and_rest(name)
    behind = split(value)[1] if digested else value
    if name[:1] == MAP:
        behind = field_of(rest, behind)[1]
    return value[: len(value) - len(behind)]


def key_and_rest(name: bytes) -> tuple[bytes, bool, bytes]:
    """Returns (grouping key, whether that is its digest, what stands behind it) of the name of a variable's entry."""
    part = name[2 + name[1] :]
    size = int.from_bytes(part[:2], "big")
    digested = size == _DIGESTED
    end = 2 + (_DIGEST if digested else size)
    return part[2:end], digested, part[end:]


def _digest_of(key: bytes) -> bytes:
    return hashlib.blake2b(key, digest_size=_DIGEST).digest()


def item_name(head: bytes, index: int) -> bytes:
    """Returns the name of a list's item; `head` is that of the list."""
    return ITEM + head[1:] + index.to_bytes(6, "big")


def list_head(first: int, end: int) -> bytes:
    """Returns the value of a list's entry whose items have the indexes first..end-1."""
    return first.to_bytes(6, "big") + end.to_bytes(6, "big")


def list_bounds(head: bytes | None) -> tuple[int, int]:
    """Returns (index of the first item, index behind the last) of the value of a list's entry; (0, 0) for none."""
    return (0, 0) if head is None else (int.from_bytes(head[:6], "big"), int.from_bytes(head[6:12], "big"))


def time_bytes(time: int) -> bytes:
    """Returns a time such that bytes sort as times do."""
    return (time + _BIAS).to_bytes(8, "big")


def time_of(raw: bytes) -> int:
    """Reads what `time_bytes` wrote."""
    return int.from_bytes(raw[:8], "big") - _BIAS


def timer_name(time: int, key: bytes, family: bytes = TIMER) -> tuple[bytes, bytes]:
    """Returns (name, value) of a timer; the key is in the one or the other, see `timer_of`."""
    return family + time_bytes(time) + key_part(key), b"" if len(key) <= _KEY_MAX else key


def timer_of(name: bytes, value: bytes) -> tuple[int, bytes]:
    """Returns (time, key) of a timer."""
    return time_of(name[1:]), value or name[11:]


def behind_time(name: bytes) -> bytes:
    """Returns what stands behind the time in the name of a timer: what `key_part` gives for its key."""
    return name[9:]


def timers_until(time: int, family: bytes = TIMER) -> tuple[bytes, bytes]:
    """Returns the range of the names of timers, or expiries, at a time or before."""
    return family, family + time_bytes(time + 1)


def note_earliest(state: BinState, bins: Iterable[int], families: tuple[bytes, ...]) -> None:
    """Notes the earliest timer or expiry of bins, whose entries are stored."""
    for bin_ in sorted(bins):
        names = [state.first(bin_, family, _AFTER[family]) for family in families]
        state.set_earliest_timer(bin_, min((time_of(name[1:]) for name in names if name), default=None))


def note_changed(state: BinState, changed: Iterable[tuple[int, bytes]], families: tuple[bytes, ...]) -> None:
    """Notes it of the bins of which a timer or expiry is among changed entries, each given as (bin, name)."""
    note_earliest(state, {bin_ for bin_, name in changed if name[:1] in families}, families)


def own_timer_name(time: int, head: bytes) -> bytes:
    """Returns the name by which a key's timers are found in order of their times; `head` is TIMERS and the key."""
    return head + time_bytes(time)


def expiry_name(time: int, entry: bytes) -> bytes:
    """Returns the name of the note that an entry, or the first item of a list, is to be looked at at a time."""
    return EXPIRY + time_bytes(time) + entry


def after(prefix: bytes) -> bytes:
    """Returns a name above all that begin with a prefix."""
    return prefix + b"\xff" * 400
