"""Both topics, whole, as columns, and the offsets of each epoch: the checker shares no client with the pipeline.

A file `offsets/<epoch>` holds a version line, a line of metadata, and a line per source with the offsets at which the
epoch ends; it is written before the epoch runs. `commits/<epoch>` appears when the epoch is done.
"""

import gc
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from kafka import KafkaConsumer, TopicPartition
from numpy.typing import NDArray

from harness.oracle.columns import Columns, OracleError, Ranges, RawResults, Records

_RECORD = np.dtype([("key", "S16"), ("scheduled_us", "S16")])  # decimal digits
_NUMBER = np.dtype([
    ("query", "<u8"), ("worker", "<u2"), ("generation", "<u4"), ("epoch", "<u4"), ("index", "<u8"), ("commit", "<u4"),
])  # fmt: skip
_HEADER = "n"
_CHUNK = 20_000
_FRAME_MAX = (1 << 31) - 1  # bytes of an answer, the most there can be; by default the client refuses one of 1 MB
_C = TypeVar("_C", bound=Columns)


@contextmanager
def _consumer(bootstrap: str, topic: str) -> Iterator[tuple[Any, list[TopicPartition]]]:
    # The client computes checksums in Python, a third of the reading time; what is damaged does not decode.
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        enable_auto_commit=False,
        check_crcs=False,
        max_poll_records=_CHUNK,
        fetch_max_bytes=64 << 20,
        max_partition_fetch_bytes=4 << 20,
        receive_message_max_bytes=_FRAME_MAX,
    )
    try:
        partitions = sorted(consumer.partitions_for_topic(topic) or ())
        if not partitions:
            raise OracleError(f"Topic {topic!r} does not exist at {bootstrap}.")
        yield consumer, [TopicPartition(topic, number) for number in partitions]
    finally:
        consumer.close()


@contextmanager
def _no_collector() -> Iterator[None]:
    """The collector finds nothing among a million short-lived records and takes a sixth of the time to say so."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _read_topic(bootstrap: str, topic: str, deadline_s: float) -> Iterator[tuple[int, list[Any]]]:
    """Yields (partition, messages) from the beginning of a topic to its end as it is now.

    Raises OracleError when there is no such topic, its first messages are gone, or nothing comes for `deadline_s`
    seconds: how long all of it takes depends on how much it is.
    """
    give_up = time.monotonic() + deadline_s
    with _consumer(bootstrap, topic) as (consumer, partitions), _no_collector():
        _check_beginnings(consumer, partitions)
        consumer.assign(partitions)
        consumer.seek_to_beginning()
        ends: dict[TopicPartition, int] = consumer.end_offsets(partitions)
        while behind := [tp for tp in partitions if consumer.position(tp) < ends[tp]]:
            if time.monotonic() > give_up:
                left = f"{len(behind)} of its partitions are not read to their ends"
                raise OracleError(f"Nothing came from the topic {topic!r} for {deadline_s:.0f} s, and {left}.")
            for tp, messages in consumer.poll(timeout_ms=1000).items():
                give_up = time.monotonic() + deadline_s
                yield tp.partition, [message for message in messages if message.offset < ends[tp]]


def _check_beginnings(consumer: Any, partitions: list[TopicPartition]) -> None:
    for tp, first in consumer.beginning_offsets(partitions).items():
        if first > 0:
            raise OracleError(f"The broker has deleted the first {first} messages of {tp.topic}-{tp.partition}.")


def _joined(parts: list[bytes], dtype: Any, where: str) -> NDArray[Any]:
    width = np.dtype(dtype).itemsize
    if not all(len(part) == width for part in parts):
        raise OracleError(f"{where} holds messages that are not {width} bytes long.")
    return np.frombuffer(b"".join(parts), dtype)


def _numbers(digits: NDArray[Any], where: str) -> NDArray[np.int64]:
    try:
        return digits.astype(np.int64)
    except ValueError as error:
        raise OracleError(f"{where} holds messages that are no numbers: {error}.") from error


def _number(message: Any, topic: str) -> bytes:
    for name, value in message.headers:
        if name == _HEADER:
            return bytes(value)
    raise OracleError(f"The message at {topic}-{message.partition}:{message.offset} has no header {_HEADER!r}.")


def number_columns(messages: list[Any], topic: str) -> dict[str, NDArray[Any]]:
    """Returns worker, generation, epoch, index and commit from the headers of results of one query.

    Raises OracleError for a message that is no result, and for results of several queries.
    """
    numbers = [_number(message, topic) for message in messages]
    found = _joined(numbers, _NUMBER, f"The number header of {topic!r}")
    if len(np.unique(found["query"])) > 1:
        raise OracleError(f"Topic {topic!r} holds results of several queries: the answer to each is in a topic alone.")
    return {name: found[name] for name in _NUMBER.fields or () if name != "query"}


def key_column(messages: list[Any], topic: str) -> NDArray[Any]:
    """Returns the keys of results, 64-bit integers; raises OracleError where one is none."""
    return _joined([message.key or b"" for message in messages], ">i8", f"The key column of {topic!r}")


def read_columns(
    kind: type[_C], bootstrap: str, topic: str, deadline_s: float, columns_of: Callable[[list[Any]], Mapping[str, Any]]
) -> _C:
    """Returns a topic, up to its present end, as columns in (partition, offset) order; raises as `_read_topic`.

    Args:
        kind: what to return; it has partition and offset.
        bootstrap: broker addresses.
        topic: what to read.
        deadline_s: longest time without a message, in seconds.
        columns_of: from messages of a partition to their other columns, by name.
    """
    parts: dict[str, list[NDArray[Any]]] = {name: [np.empty(0, dtype)] for name, dtype in kind.dtypes().items()}
    for partition, messages in _read_topic(bootstrap, topic, deadline_s):
        offsets = np.array([message.offset for message in messages], np.int64)
        place = {"partition": np.full(len(messages), partition, np.int32), "offset": offsets}
        for name, column in {**place, **columns_of(messages)}.items():
            parts[name].append(column)
    columns = {name: np.concatenate(chunks).astype(chunks[0].dtype) for name, chunks in parts.items()}
    order = np.lexsort((columns["offset"], columns["partition"]))
    return kind(**{name: column[order] for name, column in columns.items()})


def read_records(bootstrap: str, topic: str, *, deadline_s: float = 60.0) -> Records:
    """Returns the input topic from its beginning to its present end; raises OracleError when it cannot in the time."""
    where = f"The value column of {topic!r}"

    def columns_of(messages: list[Any]) -> dict[str, NDArray[Any]]:
        values = _joined([message.value or b"" for message in messages], _RECORD, where)
        return {name: _numbers(values[name], where) for name in ("key", "scheduled_us")}

    return read_columns(Records, bootstrap, topic, deadline_s, columns_of)


def read_results(bootstrap: str, topic: str, *, deadline_s: float = 60.0) -> RawResults:
    """Returns the results topic, repeats included; raises OracleError when it cannot or a message has another form."""

    def columns_of(messages: list[Any]) -> dict[str, NDArray[Any]]:
        return {
            "key": key_column(messages, topic),
            "count": _joined([message.value or b"" for message in messages], "<i8", f"The value column of {topic!r}"),
            **number_columns(messages, topic),
        }

    return read_columns(RawResults, bootstrap, topic, deadline_s, columns_of)


def result_partitions(bootstrap: str, topic: str) -> int:
    """Returns the number of partitions of a topic; raises OracleError when there is no such topic."""
    with _consumer(bootstrap, topic) as (_, partitions):
        return len(partitions)


Ends = dict[int, int]


def _numbered(folder: Path) -> list[int]:
    return sorted(int(file.name) for file in folder.iterdir() if file.name.isdigit()) if folder.is_dir() else []


def _kafka_ends(line: str, topic: str) -> Ends | None:
    """Returns the end offsets in a source's line, None when the line is another source's."""
    try:
        data = json.loads(line)
    except ValueError:
        return None
    ends = data.get(topic) if isinstance(data, dict) else None
    return {int(p): int(end) for p, end in ends.items()} if isinstance(ends, dict) else None


def _epoch_ends(file: Path, topic: str, *, several: bool = False) -> Ends:
    lines = [ends for line in file.read_text().splitlines() if (ends := _kafka_ends(line, topic)) is not None]
    if several and lines:
        return {p: min(ends.get(p, 0) for ends in lines) for p in sorted({p for ends in lines for p in ends})}
    if len(lines) > 1:
        raise OracleError(f"{file} names topic {topic!r} {len(lines)} times: one source per topic can be checked.")
    # A source that has delivered nothing yet is written as a dash: its offsets are those of the epoch before.
    return lines[0] if lines else {}


def consumed_records(checkpoint: Path, topic: str) -> int:
    """Returns how many records the newest committed epoch and those before it have absorbed, 0 before the first."""
    for epoch in reversed(_numbered(checkpoint / "commits")):
        if ends := _epoch_ends(checkpoint / "offsets" / str(epoch), topic, several=True):
            return sum(ends.values())
    return 0


def read_ranges(checkpoint: Path, topic: str, *, several: bool = False) -> Ranges:
    """Returns the offsets that each committed epoch of a query absorbed, without empty ranges, from offset 0 on.

    With `several` the query may read the topic more than once, as a join with itself does, and what counts is what all
    of its sources have read.

    Raises:
        OracleError: an epoch is missing from the logs in the checkpoint folder, or none is committed.
    """
    begun, committed = _numbered(checkpoint / "offsets"), _numbered(checkpoint / "commits")
    if not committed:
        raise OracleError(f"No epoch is committed in {checkpoint}.")
    missing = sorted(set(range(committed[-1] + 1)) - (set(begun) & set(committed)))
    if missing:
        raise OracleError(
            f"The logs in {checkpoint} lack {len(missing)} epochs, first {missing[0]}:"
            " set spark.sql.streaming.minBatchesToRetain above the number of epochs."
        )
    rows, at = list[tuple[int, int, int, int]](), Ends()
    for epoch in committed:
        ends = _epoch_ends(checkpoint / "offsets" / str(epoch), topic, several=several)
        rows += [(epoch, p, at.get(p, 0), end) for p, end in ends.items() if end > at.get(p, 0)]
        at |= ends
    epochs, partitions, first, end_ = np.array(rows, np.int64).reshape(-1, 4).T
    return Ranges(epochs, partitions.astype(np.int32), first, end_)
