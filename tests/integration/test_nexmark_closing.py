"""Queries 4 and 6 on Spark's own state, on events that meet every rule."""

import json
import os

import pytest
from auctions import FROM_SCRATCH, auction, bid, ends, random_events

from impls.mechanisms.native_spark.conf import own_state_store
from impls.mechanisms.native_spark.nexmark import answers
from impls.mechanisms.native_spark.nexmark_closing import DELAY_MS

pytestmark = pytest.mark.spark
FILES = 6
EDGES = [
    auction(1, 5_000, 8_000, reserve=3), bid(1, 5_000, 2), bid(1, 5_000, 3), bid(1, 7_999, 4), bid(1, 8_000, 9),
    bid(2, 8_100, 7), bid(2, 8_200, 5), auction(2, 8_200, 10_000),  # one bid before the opening, one at it
    bid(3, 8_300, 1), auction(4, 9_000, 10_000, category=11),  # an auction that never comes, one that nobody wins
]  # fmt: skip


@pytest.fixture
def native(spark):
    """The shared session with the state store that Spark's own queries have."""
    with own_state_store(spark, 2):
        yield spark


def asked(spark, folder, query, events):
    """Returns a query's results on events that come in as many epochs as there are files."""
    (folder / "in").mkdir()
    per = -(-len(events) // FILES)
    for n, low in enumerate(range(0, len(events), per)):
        lines = [json.dumps({k: v for k, v in e.items() if k != "kind"}) for e in events[low : low + per]]
        path = folder / "in" / f"{n}.txt"
        path.write_text("\n".join(lines) + "\n")
        os.utime(path, (n, n))  # Spark takes the oldest first
    raw = spark.readStream.option("maxFilesPerTrigger", 1).text(str(folder / "in"))
    writer = answers(raw, query).writeStream.format("memory").queryName(f"closing_{query}").outputMode("append")
    running = writer.option("checkpointLocation", str(folder / "log")).trigger(availableNow=True).start()
    running.awaitTermination()
    return [json.loads(row.value) for row in spark.table(f"closing_{query}").collect()]


ONE_AUCTION = [auction(1, 5_000, 8_000), bid(1, 6_000, 4)]
TOUCHING = [bid(1, 1_000, 4), bid(2, 11_000, 5)]  # by one bidder, exactly a gap apart


@pytest.mark.parametrize(
    ("query", "events", "end_ms", "number"),
    [
        ("q9", ONE_AUCTION, 7_999, 0), ("q9", ONE_AUCTION, 8_000, 1), ("q6", ONE_AUCTION, 8_000, 1),
        ("q11", TOUCHING, 20_999, 1), ("q11", TOUCHING, 21_000, 2),
    ],
)  # fmt: skip
def test_a_result_is_there_once_the_watermark_is_at_its_end(native, tmp_path, query, events, end_ms, number):
    last = bid(10**9, end_ms + DELAY_MS, 1, bidder=10**6)
    found = asked(native, tmp_path, query, [*events, last])
    assert sorted(found, key=lambda row: row.get("end")) == FROM_SCRATCH[query](events)[:number]


@pytest.mark.parametrize("query", ["q4", "q6"])
def test_results_are_those_worked_out_from_scratch(native, tmp_path, query):
    later = [
        {**e, **{name: e[name] + 20_000 for name in ("dateTime", "expires") if name in e}}
        for e in random_events(3, 150)
    ]
    ids = {"id": 100, "auction": 100, "seller": 0}
    events = [
        *EDGES,
        *(
            {name: value + ids[name] if name in ids else value for name, value in e.items()} if e["kind"] else e
            for e in later
        ),
    ]
    expected = FROM_SCRATCH[query](events)
    assert len(expected) > 10
    found = asked(native, tmp_path, query, [*events, *ends(query)])
    assert sorted(map(json.dumps, found)) == sorted(map(json.dumps, expected))
