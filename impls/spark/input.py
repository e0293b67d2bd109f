"""A query's input: its records with their identity, the numbers of its topics, and how far it was read."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

from impls.brokers import of_source, reaching
from impls.controltopic.listener import Begin
from impls.driver.arrivals import Arrivals, Consumed
from impls.driver.handle import RunQuery
from impls.driver.journal import replace_bytes
from impls.errors import ADVICE, StateError, UsageError
from impls.spark.identity import KAFKA, Identified, identified, readings_of, rows_of, streaming_sources
from impls.spark.known import ANSWER_S, KafkaTopics, RunningTopics, topics_at_start
from impls.spark.source import InputLog, epoch_begin, read_offsets, read_partitions, read_until, real_time_begin
from impls.spark.topics import Topics
from impls.worker.output import Output
from impls.worker.sinks import Sink

_ROWS = "rows.json"
_BOOTSTRAP = "kafka.bootstrap.servers"
_START_S = 10.0  # in which a broker says the ids of topics
_LOOK_S = 1.0  # between looks at topics in real time, whose epochs are short and whose results do not wait for them


def makes_rows(own: Path) -> bool:
    """Returns whether a query makes several rows of a record in real time, which it numbers; `own` as for `keep`."""
    path = own / _ROWS
    return path.exists() and path.read_bytes() != b"[]"


@dataclass(frozen=True)
class QueryInput:
    """A query's input.

    Attributes:
        df: the DataFrame that was given.
        source: it with the identity of its records.
        topics: the numbers of its topics, for the checkpoint.
        renewed: those that were made anew since the last start.
        noted: what the checkpoint had noted of topics when they were read.
        broker: librdkafka's settings for the broker, None where there is none, or several.
        location: folder of Spark's own checkpoint.
    """

    df: DataFrame
    source: Identified
    topics: Topics
    renewed: tuple[str, ...]
    noted: bytes
    broker: dict[str, str] | None
    location: Path

    @classmethod
    def of(cls, df: DataFrame, results: Sink, checkpoint: str | Path, *, numbered: bool) -> "QueryInput":
        """Returns the input of a query.

        Args:
            df: the source.
            results: the query's, whose options may say how the broker is reached.
            checkpoint: its folder.
            numbered: the rows of a record are numbered, where it can have several, and results that a filter leaves out
                are known, as in real time.

        Raises:
            UsageError: the identity of records is not known, or a topic was made anew that this query has read.
        """
        folder, broker = Path(checkpoint), _broker_settings(df, results)
        own, location = folder / "rescale", folder.absolute() / "spark"
        noted = Topics.noted(own)
        asked = None if broker is None else KafkaTopics(broker, _START_S)
        topics, renewed = topics_at_start(own, location, readings_of(df), asked)
        source = identified(df, topics, keeping=numbered)
        several = numbered and source.several
        source = replace(source, several=several, rows=rows_of(df) if several else ())
        return cls(df, source, topics, tuple(renewed), noted, broker, location)

    def keep(self, own: Path, *, fsync: bool) -> None:
        """Makes the numbers durable, once no other start can use the checkpoint.

        Args:
            own: this project's part of the checkpoint.
            fsync: whether they must survive the host's failure.

        Raises:
            UsageError: another start has used the checkpoint since the topics were read, or records that come again
                would become other rows.
            StateError: that fails.
        """
        if Topics.noted(own) != self.noted:
            raise UsageError("Another start has used the checkpoint meanwhile: start the query again.")
        self._keep_rows(own, fsync=fsync)
        if self.renewed:
            InputLog(str(self.location), self.topics).begin_anew(self.renewed)
        self.topics.keep(own, fsync=fsync)

    def _keep_rows(self, own: Path, *, fsync: bool) -> None:
        """Keeps what decides how rows are numbered; in real time records that have been applied come again."""
        path, rows = own / _ROWS, list(self.source.rows)
        try:
            before = json.loads(path.read_bytes()) if path.exists() else rows
        except ValueError as error:
            raise UsageError(f"The file {path} is damaged: {ADVICE}.") from error
        if before != rows and (read_partitions(self.location) or read_offsets(self.location)):
            raise UsageError(
                "The input makes other rows of a record than at the last start, by another explode or a filter behind "
                "it, and in real time the last records come again: their rows would count twice or not at all. Leave "
                "both as they were and filter in a step of the operator, or begin with a new checkpoint."
            )
        if before != rows or not path.exists():
            replace_bytes(path, json.dumps(rows).encode(), fsync=fsync)

    def noting(self, run: RunQuery, own: Path, *, real_time: bool, fsync: bool) -> RunQuery:
        """Returns a runner's function that looks at the ids of topics while the query runs.

        Args:
            run: see `impls.driver.handle.RunQuery`.
            own: this project's part of the checkpoint.
            real_time: a look a second is enough; otherwise there is one before each epoch.
            fsync: whether what is noted must survive the host's failure.
        """
        if self.broker is None:
            return run
        broker = KafkaTopics(self.broker, ANSWER_S)
        every_s = _LOOK_S if real_time else 0.0
        topics = RunningTopics(self.topics, own, self.location, broker, every_s=every_s, fsync=fsync)

        def noted(epoch_of: Callable[[Any, int], None], started: Callable[[], None]) -> Exception | None:
            def epoch(batch: Any, number: int) -> None:
                topics.note()
                epoch_of(batch, number)

            try:
                return run(epoch, started)
            finally:
                topics.note(last=True)

        return noted

    @property
    def told_apart(self) -> Topics:
        """The topics by which input partitions are numbered, none where they are the user's own numbers."""
        return self.topics if self.source.carried else Topics()

    def begin(self, *, real_time: bool) -> Begin:
        """Returns what says at which offsets an epoch begins."""
        if real_time:
            return lambda _epoch: real_time_begin(self.location, self.told_apart)
        return partial(epoch_begin, self.location)

    def partitions(self) -> int:
        """Returns how many partitions the Kafka sources have, one at least: those that a broker in reach knows."""
        try:
            known = {} if self.broker is None else KafkaTopics(self.broker, ANSWER_S).partitions()
        except StateError:
            known = {}
        return max(1, sum(reading.partitions(known) for reading in self.topics.readings))

    def followed(self, *, real_time: bool) -> Consumed:
        """Returns what says how far a stage with event time has read; raises UsageError where nobody knows."""
        if (arrivals := self.arrivals(real_time=real_time)) is None:
            raise UsageError(
                "A stage with event time reads the stage before it and another broker, or a source that is not Kafka, "
                "so nobody knows how far: let that go through a stage of its own, in a chain on its broker."
            )
        if real_time and self.source.hides:
            raise UsageError(
                f"The {self.source.hides} of a stage with event time hides how far the results of the stage before it "
                "were read, and in real time the watermark waits for these: do its work in an operator instead."
            )
        return arrivals.consumed

    def arrivals(self, *, real_time: bool) -> Arrivals | None:
        """Returns what says how far the source goes and was read; None where it is not Kafka."""
        if self.broker is None:
            return None
        read = read_until(str(self.location), self.told_apart, real_time=real_time)
        return Arrivals(self.broker, read, behind=int(real_time))


def _broker_settings(df: DataFrame, results: Sink) -> dict[str, str] | None:
    """Returns librdkafka's settings for the broker of a DataFrame's Kafka source, None if it has none, or several.

    SASL and TLS are those of the source, and what it has in Java's form only, those of the results' topic.
    """
    sources = [_options(leaf) for leaf in streaming_sources(df) if str(leaf.sourceName()) == KAFKA]
    if len(found := {options.get(_BOOTSTRAP, "") for options in sources}) != 1:
        return None
    (bootstrap,) = found
    more, at = (results.options, results.bootstrap) if isinstance(results, Output) else ({}, "")
    return reaching(bootstrap, of_source(sources[0]), more, at)


def _options(leaf: Any) -> dict[str, str]:
    """Returns the options of a source of Spark's, their names in lower case."""
    entries = leaf.extraOptions().entrySet().iterator()
    found = {}
    while entries.hasNext():
        entry = entries.next()
        found[str(entry.getKey()).lower()] = str(entry.getValue())
    return found
