"""What a processor is run with: its columns, modes and chunks of input; the files of tests/processors each have one."""

import base64
import importlib
import json
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.types import StructType
from topics import producer_for

FOLDER = Path(__file__).parent / "processors"
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Case:
    """One processor and its input.

    Attributes:
        processor: makes it.
        input, output: DDL of the rows that come and go.
        chunks: rows of each step, in the order of `input`'s columns; what a step gives rise to is done before the next.
        key: its key columns.
        mode, time: output mode and time mode, as Spark's method takes them.
        watermark: column and delay of the event time.
        event_time_column: the output's column with the event time.
        initial: DDL and rows of the initial state.
        pandas: whether rows come and go as frames.
        wait_ms: with processing time: how long behind its rows a step has one more epoch.
        replaced: makes the processor that takes over when both queries have been stopped, from a step on.
        whole: outputs are compared behind the last step: which epoch without rows has them is nobody's promise.
        settings: of the session, while the queries run.
        says: for a processor that fails: words in the message, where ours is not of Spark's error class.
    """

    processor: Callable[[], StatefulProcessor]
    input: str
    output: str
    chunks: Sequence[Sequence[tuple[Any, ...]]]
    key: tuple[str, ...] = ("key",)
    mode: str = "update"
    time: str = "none"
    watermark: tuple[str, str] | None = None
    event_time_column: str = ""
    initial: tuple[str, Sequence[tuple[Any, ...]]] | None = None
    pandas: bool = False
    wait_ms: int = 0
    replaced: dict[int, Callable[[], StatefulProcessor]] = field(default_factory=dict)
    whole: bool = False
    settings: dict[str, str] = field(default_factory=dict)
    says: tuple[str, ...] = ()


def event_timed(processor: Callable[[], StatefulProcessor], *columns_and_chunks: Any, delay: str, **how: Any) -> Case:
    """A case in append mode with the event time `at`, whose watermark is `delay` behind it."""
    return Case(processor, *columns_and_chunks, mode="append", time="eventTime", watermark=("at", delay), **how)


def at(seconds: float) -> datetime:
    """A time of the input, some seconds behind its begin."""
    return BEGIN + timedelta(seconds=seconds)


def at_ms(seconds: float) -> int:
    """The same in ms since the Unix epoch, for a processor to register a timer."""
    return int(at(seconds).timestamp() * 1000)


def found(prefix: str = "") -> dict[str, Case]:
    """Every case by the name of its file; their code goes to workers by value, which do not have these files."""
    cases = {}
    for path in sorted(FOLDER.glob("*.py")):
        if path.stem.startswith("fails_") == (prefix == "fails_"):
            module = importlib.import_module(f"processors.{path.stem}")
            cloudpickle.register_pickle_by_value(module)
            cases[path.stem] = module.CASE
    return cases


def tiered(names: Iterable[str], default: Collection[str]) -> list[Any]:
    """Cases as parameters: some of each kind in the run of every change; all of them take a quarter of an hour."""
    marks = {True: pytest.mark.lengthy, False: pytest.mark.slow}
    return [pytest.param(name, marks=marks[name in default]) for name in sorted(names)]


def encoded(case: Case, rows: Iterable[tuple[Any, ...]]) -> list[bytes]:
    """Rows as JSON that `records` reads back."""
    names = StructType.fromDDL(case.input).names
    return [json.dumps(dict(zip(names, row, strict=True)), default=_plain).encode() for row in rows]


def _plain(value: Any) -> str:
    match value:
        case bytes():
            return base64.b64encode(value).decode()
        case datetime():
            return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        case date() | Decimal():
            return str(value)
    raise TypeError(f"{value!r} has no JSON")


def step_records(case: Case) -> int:
    """Records of each step in the topic: shorter chunks are filled up with records without a value."""
    longest = max(map(len, case.chunks))
    return longest + longest % 2


def records(case: Case, spark: Any, kafka: str, topic: str, *, whole: bool = True) -> Any:
    """The rows of a case, with watermark and where each came from; if `whole`, an epoch has all of a step or none."""
    options = {"kafka.bootstrap.servers": kafka, "subscribe": topic, "startingOffsets": "earliest"}
    whole_steps = {"minOffsetsPerTrigger": str(step_records(case))} if whole else {}
    raw = spark.readStream.format("kafka").options(**options, **whole_steps).load()
    value = F.from_json(F.col("value").cast("string"), case.input).alias("row")
    frame = raw.where("value IS NOT NULL").select(value, "partition", "offset").select("row.*", "partition", "offset")
    return frame.withWatermark(*case.watermark) if case.watermark else frame


def send(case: Case, kafka: str, topic: str, step: int) -> None:
    """Produces a step's records, in turns to both partitions of a topic."""
    rows = encoded(case, case.chunks[step])
    producer = producer_for(kafka)
    for n, value in enumerate([*rows, *[None] * (step_records(case) - len(rows))]):
        producer.produce(topic, value, partition=n % 2)
    assert producer.flush(30) == 0


def initial_state(case: Case, spark: Any) -> Any:
    """The grouped frame of a case's initial state, None where it has none."""
    if case.initial is None:
        return None
    schema, rows = case.initial
    return spark.createDataFrame(list(rows), schema).groupBy(*case.key)


def canonical(text: str | bytes) -> str:
    """A JSON value with its fields in order, and each number as Python writes it: 1.0E-9 is 1e-09."""
    return json.dumps(json.loads(text), sort_keys=True)
