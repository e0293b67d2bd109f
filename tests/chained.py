"""A chain of two stages with event time, rescaled, killed and started again: the highest count of each window, once.

In real time in a process of its own, whose Spark session needs other settings than that of the other tests.
"""

import json
import sys
from collections import Counter
from dataclasses import dataclass
from functools import partial, reduce
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

from linked import DEADLINE_S, PARTITIONS, SLOTS, Topic
from linked_operators import DISORDER, SIZE, Counts, Highest
from pipeline import await_true
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from scenarios import session_for
from topics import json_rows, producer_for

import impls
from impls.errors import UsageError

KEYS, BINS = 30, 16
FEW = 1  # such counts the last stage leaves out
FAR = 1 << 40  # the time of the last record of each partition


@dataclass
class Chained:
    """The chain, its input and what must come of it."""

    spark: Any
    kafka: str
    topics: list[str]  # of the input, of the results
    folder: Path
    mode: str = "micro-batch"
    name: str = "chain"
    explodes: bool = False  # whether the last stage makes rows of each count
    counting: tuple[str, ...] = ("counts",)  # the stages that count, each some of the names
    beside: tuple[str, ...] = ()  # what the last stage reads besides

    def __post_init__(self) -> None:
        self._random, self._now = Random(7), 1_000
        self._counted: Counter[tuple[int, int]] = Counter()
        self._found = Topic(self.kafka, self.topics[1])

    def deadly(self, stage: str) -> Path:
        return self.folder / f"kill-{stage}"

    def start(self) -> impls.Chain:
        read = "end long, name long, n long"
        highest = partial(impls.stream, key="end", operator=self._of("highest", Highest))
        return impls.chain(
            self.spark and json_rows(self.spark, self.kafka, self.topics[0], "name long, at long"),
            [
                *(self._counts(stage, read) for stage in self.counting),
                impls.Stage("highest", highest, 2, select=self._selected, inputs=(*self.counting, *self.beside)),
            ],
            name=self.name, bootstrap=self.kafka, results=impls.Output(self.kafka, self.topics[1], PARTITIONS),
            state_dir=self.folder / "state", checkpoint=self.folder / "checkpoint", partitions=PARTITIONS, bins=BINS,
            log_dir=str(self.folder / "log"),
            mode=self.mode, real_time=impls.RealTime(SLOTS),
            py_files=[Path(__file__).with_name("linked_operators.py")],
        )  # fmt: skip

    def _counts(self, stage: str, read: str) -> impls.Stage:
        """The stage that counts every second name, the third, ..., or all of them."""
        number, of = self.counting.index(stage), len(self.counting)
        return impls.Stage(
            stage, partial(impls.stream, key="name", operator=self._of(stage, Counts)), 2, read, inputs=("input",),
            select=lambda rows: rows.where(f"name % {of} = {number}"),
        )  # fmt: skip

    def _selected(self, first: Any, *others: Any) -> Any:
        rows = reduce(partial(DataFrame.unionByName, allowMissingColumns=True), others, first)
        many = rows.where(f"n > {FEW}").withColumn("n", F.expr(f"n + 0 div (n - {FEW})"))  # else by zero
        windows = many.withColumn("window", F.window(F.timestamp_seconds("end"), "10 seconds"))
        return windows.withColumn("one", F.explode(F.array("n"))) if self.explodes else windows

    def _of(self, stage: str, kind: Any) -> Any:
        return kind(str(self.deadly(stage)))

    def send(self, records: int) -> None:
        """Sends records whose times go on, out of order within the disorder."""
        producer = producer_for(self.kafka)
        for i in range(records):
            self._now += self._random.random() < 0.2
            at, name = self._now - self._random.randrange(DISORDER), self._random.randrange(KEYS)
            self._counted[at - at % SIZE + SIZE, name] += 1
            producer.produce(self.topics[0], json.dumps({"name": name, "at": at}), partition=i % 2)
        assert producer.flush(30) == 0

    def end(self) -> None:
        """Sends what closes every window."""
        for partition, name in product(range(2), range(len(self.counting))):
            value = json.dumps({"name": name, "at": FAR})
            producer_for(self.kafka).produce(self.topics[0], value, partition=partition)
        assert producer_for(self.kafka).flush(30) == 0

    def expected(self) -> dict[int, tuple[int, list[int]]]:
        """By the end of each window, the highest count and whose it is; no windows that have few of each name."""
        found: dict[int, tuple[int, list[int]]] = {}
        for (end, name), n in self._counted.items():
            if n <= FEW:
                continue
            most, names = found.get(end, (0, []))
            if n >= most:
                found[end] = n, sorted([*(names if n == most else []), name])
        return found

    def found(self) -> dict[int, tuple[int, list[int]]]:
        """The results so far; there is one of each window."""
        read = self._found.read().values()
        assert all(times == 1 for times, _ in read), "a window has two results"
        return {row["end"]: (row["n"], row["names"]) for _, row in read}

    def await_windows(self, chain: impls.Chain, until: int, what: str) -> None:
        """Waits until the windows that end by a time have their results, which are right."""

        def there() -> bool:
            assert not chain.await_end(0)  # which raises what a stage has failed with
            return {end for end in self.expected() if end <= until} <= self.found().keys()

        await_true(there, what, DEADLINE_S)
        assert {end: self.expected()[end] for end in self.found() if end <= until} == {
            end: row for end, row in self.found().items() if end <= until
        }

    @property
    def closed(self) -> int:
        """Up to here windows are closed by what was sent."""
        return self._now - 2 * DISORDER - SIZE


def scenario(chained: Chained) -> None:
    """Runs the chain through everything; all windows have the right result, once."""
    with chained.start() as chain:
        chained.send(400)
        chained.await_windows(chain, chained.closed, "the first windows")
        chain.rescale("counts", 3)
        chain.rescale("highest", 4)
        chained.send(400)
        assert chain.await_migration(DEADLINE_S)
        chained.await_windows(chain, chained.closed, "windows behind the rescales")
        for stage in ("counts", "highest"):
            chained.deadly(stage).touch()
            chained.send(300)
            await_true(lambda stage=stage: not chained.deadly(stage).exists(), f"a worker of {stage} to die")
            chained.await_windows(chain, chained.closed, f"windows behind the death of a worker of {stage}")
        chained.send(200)
    with chained.start() as chain:
        chain.rescale("counts", 2)
        chain.rescale("highest", 2)
        chained.send(200)
        chained.end()
        chained.await_windows(chain, FAR - 1, "all windows")
        assert chain.await_migration(DEADLINE_S)
        assert {name: status["workers"] for name, status in chain.status().items()} == {"counts": 2, "highest": 2}


def joined(chained: Chained) -> None:
    """Two stages count, and one reads both: windows close when both have got there, whatever happens to one of them."""
    chained.counting = ("even", "odd")
    with chained.start() as chain:
        chained.send(300)
        chained.await_windows(chain, chained.closed, "the first windows")
        for stage, workers in (("even", 3), ("highest", 3)):
            chain.rescale(stage, workers)
        chained.deadly("odd").touch()
        chained.send(300)
        await_true(lambda: not chained.deadly("odd").exists(), "a worker of odd to die")
        assert chain.await_migration(DEADLINE_S)
        chained.await_windows(chain, chained.closed, "windows behind the rescales")
        chained.end()
        chained.await_windows(chain, FAR - 1, "all windows")


def check_refused(chained: Chained) -> None:
    """A stage that makes rows of a result is refused, as the watermark would wait, and what began can go on."""
    chained.explodes, refused = True, ""
    try:
        chained.start().stop()
    except UsageError as error:
        refused = str(error)
    assert "The Generate of a stage with event time hides how far the results" in refused, refused
    chained.explodes = False


def main(given: dict[str, Any]) -> None:
    """Runs the scenario in real time."""
    apart = given["scenario"] == "joined"
    spark = session_for([2, 2, 2 * PARTITIONS] if apart else [2, PARTITIONS], SLOTS)
    name = f"{given['scenario']}-at-once"
    chained = Chained(spark, given["kafka"], given["topics"], Path(given["folder"]), "real-time", name)
    if apart:
        joined(chained)
    else:
        check_refused(chained)
        scenario(chained)
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
