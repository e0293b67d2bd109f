"""Deduplication by Spark's own processor: of events with one id the first passes, and for 45 seconds no other.

`Deduplicate` is what Spark's transformWithState runs, with state that Spark forgets after a time (TTL). The query
begins with 2 workers and goes on with 4: what has been seen moves, and so does the time at which it is to be forgotten.
"""

import time
from collections.abc import Iterator
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

import impls
from rescale_bench.playground import Playground, run, say

TTL_S = 45
EVENTS = 200


class Deduplicate(StatefulProcessor):
    """State of an id: that it has been seen."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.seen = handle.getValueState("seen", "times long", ttlDurationMs=TTL_S * 1000)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        rows = list(rows)
        if not self.seen.exists():
            self.seen.update((1,))
            yield Row(id=key[0], copy=rows[0].copy)

    def close(self) -> None:
        pass


def main(here: Playground) -> None:
    events, results = here.topic("events", 2), here.topic("distinct", 4)
    rows = here.spark.readStream.format("kafka").option("kafka.bootstrap.servers", here.kafka)
    rows = rows.option("subscribe", events).option("startingOffsets", "earliest").load()
    parsed = rows.selectExpr("from_json(string(value), 'id string, copy long') r", "partition", "offset")
    with impls.transform_with_state(
        parsed.select("r.*", "partition", "offset").groupBy("id"), Deduplicate(), "id string, copy long", "update",
        "processingtime", results=impls.Output(here.kafka, results, 4), state_dir=here.folder / "state",
        checkpoint=here.folder / "checkpoint", workers=2, bins=64,
    ) as query:  # fmt: skip
        here.send(events, copies(1), by="id")
        here.results(results, EVENTS, query)
        say(f"{EVENTS} events came for the first time; workers: {query.status()['workers']}.")
        query.rescale(workers=4)
        here.send(events, copies(2), by="id")
        query.await_migration(60)
        here.send(events, copies(3), by="id")
        say(f"They came again, twice; workers: {query.status()['workers']}, bins: {query.status()['bins']}.")
        time.sleep(TTL_S + 2)
        here.check("events before their time is over", here.results(results), copies(1))
        here.send(events, copies(4), by="id")
        here.results(results, 2 * EVENTS, query)
    here.check("events", here.results(results), copies(1) + copies(4))


def copies(number: int) -> list[dict[str, Any]]:
    return [{"id": f"e{n}", "copy": number} for n in range(EVENTS)]


if __name__ == "__main__":
    run(main)
