"""Windows are counted as by Spark: late records are left out, and windows that have passed are forgotten, or sent."""

import json
import tempfile
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from impls.aggregation import with_windows
from impls.operators import Aggregate
from impls.operators.aggregates.operator import END, EVENT, WindowAggregate
from impls.operators.aggregates.rows import WINDOW, key_type
from impls.operators.base import Input
from impls.protocol.eventtime import EventClock
from impls.store.bins import read_size
from impls.store.environment import Store
from impls.store.hashing import hash_bytes
from impls.store.state import BinState

BINS, SECONDS, DELAY_MS = 4, 2, 1000
SECOND_US = 1_000_000
COUNT = Aggregate({"window": WINDOW, "user": "string"}, {"n": "count(*)"}, {})
OPERATOR = with_windows(COUNT, DELAY_MS)
EPOCHS = st.lists(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 12)), max_size=6), min_size=1, max_size=8)


def window_of(at):
    return at // SECONDS * SECONDS


def time_of(second):
    return datetime.fromtimestamp(0, UTC) + timedelta(seconds=second)


def table(records):
    keys = [f"{window_of(at)}-{user}".encode() for user, at in records]
    windows = [{"start": time_of(window_of(at)), "end": time_of(window_of(at) + SECONDS)} for _, at in records]
    return pa.table({
        "bin": pa.array([hash_bytes(key) * BINS >> 64 for key in keys], pa.int32()),
        "partition": pa.array([0] * len(records), pa.int32()), "key": pa.array(keys, pa.binary()),
        "window": pa.array(windows, key_type(WINDOW)), "user": [user for user, _ in records],
        EVENT: pa.array([at * SECOND_US for _, at in records], pa.int64()),
        END: pa.array([(window_of(at) + SECONDS) * SECOND_US for _, at in records], pa.int64()),
    })  # fmt: skip


def columns_of(keys):
    """The columns of keys as `table` has them."""
    records = [(user, int(begin)) for begin, user in (key.decode().split("-") for key in keys)]
    return table(records).select(["window", "user"])


APPENDED = WindowAggregate(COUNT, OPERATOR.event_time, columns_of)


@given(EPOCHS)
def test_windows_are_counted_and_forgotten_as_by_spark(epochs):
    clock, everyone = EventClock(OPERATOR.event_time, BINS), np.ones(BINS, bool)
    counts, late, watermark = Counter(), None, None
    with (
        tempfile.TemporaryDirectory() as folder,
        Store.open(Path(folder) / "w") as store,
        Store.open(Path(folder) / "appended") as appended,
    ):
        for records in epochs:
            clock.hold(clock.watermark, clock.at(0))
            watermark, times = clock.watermark, clock.at(0)
            assert times.late == late
            with store.begin() as txn:
                state = BinState(txn, BINS)
                given_ = table(records) if records else None
                turned = OPERATOR.run(state, [Input(everyone, watermark, given_, times)])
                state.write_sizes()
            kept = [(user, window_of(at)) for user, at in records if end_us(window_of(at)) > (late or 0)]
            counts.update(kept)
            assert rows_of(turned) == {(user, text_of(w)): counts[user, w] for user, w in kept}
            assert turned.late == len(records) - len(kept)
            passed = {name: n for name, n in counts.items() if end_us(name[1]) <= (watermark or 0)}
            with appended.begin() as txn:
                state = BinState(txn, BINS)
                final = rows_of(APPENDED.run(state, [Input(everyone, watermark, given_, times)]))
                state.write_sizes()
            assert final == {(user, text_of(w)): n for (user, w), n in passed.items()}
            for name in passed:
                del counts[name]
            with store.reading() as txn:
                bins_with_timers = len({hash_bytes(f"{w}-{user}".encode()) * BINS >> 64 for user, w in counts})
                assert sum(read_size(txn, b)[0] for b in range(BINS)) == 2 * len(counts) + bins_with_timers
            clock.observe([(0, max(at for _, at in records) * SECOND_US)] if records else [], [])
            late = watermark


def rows_of(turned):
    rows = [json.loads(payload) for payload in turned.results.payloads]
    found = {(row["user"], row["window"]["end"]): row["n"] for row in rows}
    assert len(found) == len(rows) == len(turned.results.keys)
    return found


def text_of(window):
    return time_of(window + SECONDS).isoformat(timespec="milliseconds")[:-6] + "Z"


def end_us(window):
    return (window + SECONDS) * SECOND_US
