"""What the workers' environments hold of a processor's state, decoded by the tables of `impls.processor.encoding`."""

import json
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from cases import Case
from native_processor import Held, shown
from pyspark.sql.types import StructType

from impls.processor.kept import EvolvedRows, History
from impls.processor.keys import KeyCodec
from impls.store import naming
from impls.store.environment import Store, store_path
from impls.store.state import BinState

Entries = dict[bytes, bytes]
HIGHEST = b"\xff" * 450


def stored_state(case: Case, folder: Path, owners: list[int], held: list[Held], keys: StructType) -> list[Held]:
    """Each variable of `held` as the workers have it; `owners` has the worker of each bin, `keys` the key columns."""
    state, kept = folder / "state", json.loads((folder / "checkpoint" / "processor.json").read_text())["variables"]
    entries = dict(pair for worker in set(owners) for pair in _entries(state, worker, owners))
    codec = KeyCodec(keys)
    decoded = defaultdict(list)
    for name, value in entries.items():
        if name[:1] in {naming.VALUE, naming.LIST, naming.MAP}:
            variable, part, rest = _parted(name)
            size = int.from_bytes(value[:4], "big") + 4 if part[:2] == b"\xff\xff" else 0  # of a long key in front
            decoded[variable].append((codec.decode(value[4:size] if size else part[2:]), name, rest, value[size:]))
        elif name[:1] == naming.TIMER:
            decoded["timers"].append((codec.decode(value or name[11:]), naming.time_of(name[1:9])))
    assert set(decoded) <= {one.name for one in held}
    return [Held(one.name, one.kind, shown(_rows(one, decoded[one.name], entries, kept.get(one.name)))) for one in held]


def _entries(state: Path, worker: int, owners: list[int]) -> Iterator[tuple[bytes, bytes]]:
    with closing(Store.open(store_path(state, worker))) as store:
        txn = store.begin()
        try:
            found = BinState(txn, len(owners))
            for bin_ in [bin_ for bin_, owner in enumerate(owners) if owner == worker]:
                yield from found.scan(bin_, b"", HIGHEST)
        finally:
            txn.abort()


def _parted(name: bytes) -> tuple[str, bytes, bytes]:
    """The variable, the part for the key, and what follows."""
    begin = 2 + name[1]
    size = int.from_bytes(name[begin : begin + 2], "big")
    end = begin + 2 + (32 if size == 0xFFFF else size)
    return name[2:begin].decode(), name[begin:end], name[end:]


def _rows(one: Held, found: list[Any], entries: Entries, kept: list[Any]) -> Iterator[tuple[Any, ...]]:
    if one.kind == "timer":
        yield from found
        return
    schemas = tuple(map(StructType.fromJson, kept[1]))
    codec, now = EvolvedRows(History((*schemas, one.schema), len(schemas))), time.time_ns() // 1_000_000
    keys = None if one.key_schema is None else KeyCodec(one.key_schema)
    for key, name, rest, value in found:
        if one.kind == "list":
            first, end = int.from_bytes(value[:6], "big"), int.from_bytes(value[6:12], "big")
            raw = [entries[naming.item_name(name, index)] for index in range(first, end)]
            items = [item for item in raw if not one.lives or naming.time_of(item) > now]
            if items:
                yield key, [codec.decode(item[8 * one.lives :]) for item in items]
            continue
        field, row = (b"", value) if keys is None else naming.field_of(rest, value)
        if not one.lives or naming.time_of(row) > now:
            middle = [] if keys is None else [keys.decode(field)]
            yield (key, *middle, codec.decode(row[16 * one.lives :]))
