"""Versions of key-count whose state is entries: what tests of a changing pipeline put in each other's place."""

from impls.operators import Filter, StatefulMap


class _Raw(StatefulMap):
    """State and results are bytes."""

    def dump(self, value):
        return value

    def load(self, raw):
        return raw


class First(_Raw):
    """Keeps the count as eight bytes."""

    def update(self, _key, _record, state):
        after = (int.from_bytes(state or b"", "little") + 1).to_bytes(8, "little")
        return after, after


class Second(_Raw):
    """Keeps the count behind a mark."""

    def update(self, key, record, state):
        if state is not None and not state.startswith(b"2:"):
            raise ValueError(f"state {state!r} is of another version")
        after, _ = First().update(key, record, None if state is None else state[2:])
        return b"2:" + after, after


class Broken(First):
    """Fails on every record."""

    def update(self, key, _record, _state):
        raise ValueError(f"no idea what to do with {key!r}")


def to_second(raw):
    return b"2:" + raw


def to_first(raw):
    return raw[2:]


nothing = Filter("nothing", lambda _row: False)
all_of_it = Filter("nothing", lambda _row: True)
