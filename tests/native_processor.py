"""A case's query on Spark's own transformWithState: a step at a time, its outputs, and its final state by variable."""

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cases import Case, canonical, initial_state, records
from pipeline import await_true
from pyspark.sql import functions as F  # noqa: N812

from impls.mechanisms.native_spark.conf import own_state_store
from impls.spark.source import epoch_begin

PARTITIONS = 2


class Progress:
    """What a query's log says: which epoch has a step's records, and when epochs began."""

    def __init__(self, log: Path):
        self._log = log

    def last(self) -> int:
        """The last epoch that is committed, -1 before there is one."""
        return self._highest("commits")

    def begun(self) -> int:
        """The last epoch that has begun: with its number, one that was not committed comes again behind a start."""
        return self._highest("offsets")

    def _highest(self, folder: str) -> int:
        return max((int(path.name) for path in (self._log / folder).glob("[0-9]*")), default=-1)

    def read(self, epoch: int) -> int:
        """Records of the input up to an epoch's end."""
        begin = epoch_begin(self._log, epoch + 1) or {}
        return sum(at for parts in begin.values() for at in parts.values())

    def has(self, total: int) -> bool:
        """Whether so many records of the input are in committed epochs."""
        return self.last() >= 0 and self.read(self.last()) >= total

    def began_ms(self, epoch: int) -> int:
        """The processing time of an epoch."""
        return int(json.loads((self._log / "offsets" / str(epoch)).read_text().splitlines()[1])["batchTimestampMs"])

    def first_with(self, total: int) -> int:
        """The epoch that took the last of so many records."""
        return min(epoch for epoch in range(self.last() + 1) if self.read(epoch) >= total)

    def waited(self, total: int, wait_ms: int) -> bool:
        """Whether an epoch that began so long behind the one with the last record is committed."""
        return self.has(total) and self.began_ms(self.last()) >= self.began_ms(self.first_with(total)) + wait_ms


class Native:
    """Spark's own query of a case; `failure` is what it ended with."""

    name = "Spark's own"

    def __init__(self, case: Case, spark: Any, kafka: str, topic: str, folder: Path):
        self.case, self._spark, self._where = case, spark, (kafka, topic)
        self.folder = folder / "native"
        self.progress = Progress(self.folder)
        self._rows: list[str] = []
        self._query: Any = None
        self._before = -1

    def begin(self, processor: Any) -> None:
        """Starts it, or goes on with another processor; `await_begun` is to follow."""
        self._before = self.progress.last()
        with own_state_store(self._spark, PARTITIONS):
            writer = self.frame(processor).writeStream.outputMode(self.case.mode.lower()).foreachBatch(self._take)
            self._query = writer.option("checkpointLocation", str(self.folder)).start()

    def frame(self, processor: Any) -> Any:
        """The streaming DataFrame that it writes."""
        case = self.case
        grouped = records(case, self._spark, *self._where).groupBy(*case.key)
        method = grouped.transformWithStateInPandas if case.pandas else grouped.transformWithState
        initial = initial_state(case, self._spark)
        return method(processor, case.output, case.mode, case.time, initial, case.event_time_column)

    def await_begun(self) -> None:
        """Waits until it looks for records."""
        await_true(lambda: self._raise() or self._polled(), "Spark's own query to look for records")

    def _polled(self) -> bool:
        """Whether it has asked its source once: only from then on it waits for all of a step."""
        return self._query.status["message"].startswith("Waiting") or self.progress.last() > self._before

    def _take(self, frame: Any, _epoch: int) -> None:
        rows = frame.select(F.to_json(F.struct("*")).alias("value")).collect()
        self._rows.extend(row.value for row in rows)  # `+=` takes the list before `collect`, behind which it is another

    def finish(self, total: int) -> None:
        """Waits until all that so many records give rise to is done."""
        await_true(lambda: self._raise() or self.progress.has(total), f"{total} records in Spark's own query")
        if self.case.time.lower() == "processingtime":
            await_true(
                lambda: self._raise() or self.progress.waited(total, self.case.wait_ms), "an epoch that is later"
            )
        else:
            self._query.processAllAvailable()

    def _raise(self) -> None:
        if self._query.exception() is not None:
            raise self._query.exception()

    def outputs(self) -> list[str]:
        """The outputs since the last call."""
        taken, self._rows = self._rows, []
        return sorted(map(canonical, taken))

    def stop(self) -> None:
        """Ends it."""
        if self._query is not None:
            self._query.stop()

    def close(self) -> None:
        """Does nothing more."""

    def state(self) -> list["Held"]:
        """Each variable with its entries, and the timers."""
        with own_state_store(self._spark, PARTITIONS):
            found = self._spark.read.format("state-metadata").load(str(self.folder)).collect()
            variables = json.loads(found[0].operatorProperties)["stateVariables"]
            held = [self._variable(one) for one in variables if "$" not in one["stateName"]]
            return held + ([] if self.case.time.lower() == "none" else [self._timers()])

    def _reader(self) -> Any:
        return self._spark.read.format("statestore").option("path", str(self.folder))

    def _variable(self, one: dict[str, Any]) -> "Held":
        kind = one["stateVariableType"].lower().removesuffix("state")
        reader = self._reader().option("stateVarName", one["stateName"])
        frame = reader.option("flattenCollectionTypes", str(kind == "map").lower()).load()
        value = {"value": "value", "list": "list_value", "map": "user_map_value"}[kind]
        schema = frame.schema[value].dataType
        schema, lives = schema.elementType if kind == "list" else schema, one["ttlEnabled"]
        name, inner = one["stateName"], schema["value"].dataType if lives else schema
        columns = ["key", "user_map_key"] if kind == "map" else ["key"]
        rows = [(*(row[name] for name in columns), living(row[value], kind, lives)) for row in frame.collect()]
        rows = [row for row in rows if row[-1]]
        key_schema = frame.schema["user_map_key"].dataType if kind == "map" else None
        return Held(name, kind, shown(rows), inner, key_schema, lives)

    def _timers(self) -> "Held":
        frame = self._reader().option("readRegisteredTimers", "true").load()
        return Held("timers", "timer", shown([(row.key, row.expiration_timestamp_ms) for row in frame.collect()]))


def families_in(spark: Any, folder: Path) -> list[tuple[Any, ...]]:
    """Every row of all column families of a checkpoint: name, grouping key, bytes of key and value; in order."""
    log = max(int(path.name) for path in (folder / "commits").glob("[0-9]*"))
    version = (folder / "commits" / str(log)).read_text().splitlines()[0].removeprefix("v")
    with own_state_store(spark, PARTITIONS):
        spark.conf.set("spark.sql.streaming.stateStore.checkpointFormatVersion", version)
        reader = spark.read.format("statestore").option("_readAllColumnFamilies", "true")
        rows = reader.load(str(folder)).collect()
    return sorted(
        (row.column_family_name, repr(row.partition_key), bytes(row.key_bytes).hex(), bytes(row.value_bytes).hex())
        for row in rows
    )


def living(value: Any, kind: str, lives: bool) -> Any:
    """A value, or a list's items, whose time to live has not passed."""
    if not lives:
        return value
    now = time.time_ns() // 1_000_000
    found = [one.value for one in (value if kind == "list" else [value]) if one.ttlExpirationMs > now]
    return found if kind == "list" else next(iter(found), None)


@dataclass(frozen=True)
class Held:
    """What the state of a query has in one variable, or its timers.

    Attributes:
        name, kind: of the variable; "timers" and "timer" for these.
        entries: as text, in order.
        schema, key_schema: of values, or items, and of the keys of a map.
        lives: whether it has a time to live.
    """

    name: str
    kind: str
    entries: list[str]
    schema: Any = None
    key_schema: Any = None
    lives: bool = False


def shown(rows: list[tuple[Any, ...]]) -> list[str]:
    """Rows of Python values as text, in order."""
    return sorted(repr(plain(row)) for row in rows)


def plain(value: Any) -> Any:
    """A value without what rows, tuples and lists differ in."""
    match value:
        case tuple() | list():
            return [plain(one) for one in value]
        case dict():
            return sorted((repr(plain(key)), plain(one)) for key, one in value.items())
        case bytearray():
            return bytes(value)
    return value
