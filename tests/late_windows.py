"""A chain of windows, then minutes: records that come when their window has been sent are late, and change nothing.

The first stage is an aggregate in append mode or a processor. In real time in a process of its own, as `chained` is.
"""

import json
import sys
from collections import Counter
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import late_processors
from late_processors import MINUTE_S, WINDOW_S, Minutes, Windows, ending
from linked import DEADLINE_S, PARTITIONS, SLOTS, Topic
from pipeline import await_true
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from scenarios import session_for
from topics import json_rows, producer_for

import impls

DELAY, FAR = "70 seconds", 100_000
FIRST = 10  # minute: Spark's watermark begins at 0, and what is at it is late
COUNTS = {
    "aggregate": "window struct<start: timestamp, end: timestamp>, user string, n long",
    "processor": "end timestamp, user string, n long",
}


@dataclass
class Late:
    """The chain, its input, and what must come of what is not late."""

    spark: Any
    kafka: str
    topics: list[str]  # of the input, of the results
    folder: Path
    first: str  # "aggregate" or "processor"
    mode: str = "micro-batch"

    def __post_init__(self) -> None:
        self._random, self._counts = Random(3), Counter[tuple[int, str]]()
        self._found = Topic(self.kafka, self.topics[1])

    def start(self) -> impls.Chain:
        minutes = partial(
            impls.transform_with_state, statefulProcessor=Minutes(), outputMode="append", timeMode="eventtime",
            outputStructType="minute long, most long, counts long, records long",
        )  # fmt: skip
        return impls.chain(
            json_rows(self.spark, self.kafka, self.topics[0], "user string, at timestamp").withWatermark("at", DELAY),
            [self._counting(), impls.Stage("minutes", minutes, 2, select=self._by_minute)],
            name=self.topics[0].replace(".", "-"), bootstrap=self.kafka,
            results=impls.Output(self.kafka, self.topics[1], PARTITIONS), partitions=PARTITIONS, bins=16,
            state_dir=self.folder / "state", checkpoint=self.folder / "checkpoint",
            mode=self.mode, real_time=impls.RealTime(SLOTS), py_files=[Path(late_processors.__file__)],
        )  # fmt: skip

    def _counting(self) -> impls.Stage:
        if self.first == "aggregate":
            how: dict[str, Any] = {"keys": ["window", "user"], "values": {"n": "count(*)"}, "output_mode": "append"}
            return impls.Stage("counts", partial(impls.aggregate, **how), 2, COUNTS[self.first], select=_windowed)
        windows = partial(
            impls.transform_with_state, statefulProcessor=Windows(), outputStructType=COUNTS[self.first],
            outputMode="append", timeMode="eventtime", eventTimeColumnName="end",
        )  # fmt: skip
        return impls.Stage("counts", windows, 2, COUNTS[self.first], select=lambda rows: rows.groupBy("user"))

    def _by_minute(self, counts: DataFrame) -> Any:
        time = "window.end - INTERVAL 1 MICROSECOND" if self.first == "aggregate" else "end"
        timed = counts.withColumn("time", F.expr(time)).drop("window", "end").withWatermark("time", "0 seconds")
        return timed.withColumn("minute", F.expr(f"unix_seconds(time) div {MINUTE_S}")).groupBy("minute")

    def send(self, minute: int, *, late: bool = False) -> None:
        """Sends records of a minute in any order; those that are late are not expected, and of windows that are over.

        A processor's row for the last window of a minute has the next minute's first moment as its time.
        """
        span = MINUTE_S - WINDOW_S if late else MINUTE_S
        for i in range(200):
            user, at = f"u{self._random.randrange(8)}", minute * MINUTE_S + self._random.randrange(span)
            self._counts[ending(at), user] += not late
            self._produce(user, at, i % 2)
        assert producer_for(self.kafka).flush(30) == 0

    def end(self) -> None:
        """Sends what closes every minute."""
        for partition in range(2):
            self._produce("end", FAR, partition)
        assert producer_for(self.kafka).flush(30) == 0

    def _produce(self, user: str, at: int, partition: int) -> None:
        value = json.dumps({"user": user, "at": at})
        producer_for(self.kafka).produce(self.topics[0], value, partition=partition)

    def _minute(self, end: int) -> int:
        """Returns which minute a window counts in: a processor's row has the time of its timer."""
        return (end - (self.first == "aggregate")) // MINUTE_S

    def expected(self) -> dict[int, tuple[int, int, int]]:
        """By minute the most records of a user in a window, the number of windows and users, and that of records."""
        minutes: dict[int, list[int]] = {}
        for (end, _), n in self._counts.items():
            minutes.setdefault(self._minute(end), []).extend([n] if n else [])
        return {minute: (max(ns), len(ns), sum(ns)) for minute, ns in minutes.items() if ns}

    def found(self) -> dict[int, tuple[int, int, int]]:
        """The results so far; there is one of each minute."""
        read = self._found.read().values()
        assert all(times == 1 for times, _ in read), "a minute has two results"
        return {row["minute"]: (row["most"], row["counts"], row["records"]) for _, row in read}

    def await_minute(self, minute: int) -> None:
        await_true(lambda: minute in self.found(), f"minute {minute}", DEADLINE_S)


def _windowed(rows: DataFrame) -> DataFrame:
    return rows.withColumn("window", F.window("at", f"{WINDOW_S} seconds"))


def scenario(late: Late) -> None:
    """Sends late records before, during and behind rescales of both stages."""
    with late.start() as chain:
        for minute in range(FIRST, FIRST + 3):
            late.send(minute)
        for closed in range(FIRST, FIRST + 3):
            late.await_minute(closed)
            if closed == FIRST + 1:
                chain.rescale("counts", 3)
                chain.rescale("minutes", 1)
            for minute in range(FIRST, closed + 1):
                late.send(minute, late=True)
            late.send(closed + 3)
        assert chain.await_migration(DEADLINE_S)
        late.end()
        late.await_minute(max(late.expected()))
        assert late.found() == late.expected(), f"{late.found()} instead of {late.expected()}"


def main(given: dict[str, Any]) -> None:
    """Runs the scenario in real time."""
    spark = session_for([2, PARTITIONS], SLOTS)
    scenario(Late(spark, given["kafka"], given["topics"], Path(given["folder"]), given["scenario"], "real-time"))
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
