"""`chain`: keyed operators one behind the other, each a query that rescales by itself, with one handle for all.

The results of a stage are the input of the next one, each once and in order (`impls.spark.links`), through a topic that
the chain makes. Where a stage has event time, the watermark of the next one follows it (`impls.driver.milestones`), so
that a window there closes when all that belongs to it has come. Otherwise it goes by the results' own times.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame

from impls.addresses import below
from impls.brokers import quiet, security_of
from impls.closing import close_all, end_all
from impls.driver.arrivals import asking, ends_to_read, ranges
from impls.driver.checkpoint import is_begun
from impls.driver.driver import Driver
from impls.driver.handle import StreamHandle
from impls.driver.migrations import MigrationRecord
from impls.driver.milestones import follow, sending
from impls.driver.preparing import NOTHING, Preparation
from impls.errors import StateError, UsageError
from impls.spark.links import results_of
from impls.stages import Stage, inputs_of
from impls.worker.output import Output
from impls.worker.sinks import ForeachBatch

_INPUT = "input"  # the chain's, where it has no other name
_TOPIC_DEADLINE_S = 30.0
_LOOK_S = 0.2
_GRACE_S = 20.0  # an epoch under overload


class Chain:
    """The running queries of a chain; all methods may be called from any thread.

    A stage that ends, for whatever reason, ends the others between two epochs. Started again on the same checkpoint,
    all go on.

    Attributes:
        stages: handles by the stages' names, in their order.
    """

    def __init__(self, stages: Mapping[str, StreamHandle]):
        self.stages = dict(stages)
        self._watch = threading.Thread(target=self._end_together, name="rescale-chain", daemon=True)
        self._watch.start()

    def rescale(self, stage: str, workers: int, **how: Any) -> str:
        """Rescales one stage, see `StreamHandle.rescale`; raises UsageError for an unknown one too."""
        if stage not in self.stages:
            raise UsageError(f"The chain has no stage {stage!r}: use one of {', '.join(self.stages)}.")
        return self.stages[stage].rescale(workers, **how)

    def await_migration(self, timeout_s: float) -> bool:
        """Waits until no stage migrates and returns whether that came about in time; raises what a stage fails with."""
        end = time.monotonic() + timeout_s
        while True:
            if not all(handle.await_migration(max(0.0, end - time.monotonic())) for handle in self.stages.values()):
                return False
            if not any(handle.status()["migrating"] for handle in self.stages.values()):
                return True  # else one has begun while others were waited for

    def status(self) -> dict[str, dict[str, Any]]:
        """Returns `StreamHandle.status` of each stage by its name."""
        return {name: handle.status() for name, handle in self.stages.items()}

    def migrations(self) -> dict[str, list[MigrationRecord]]:
        """Returns `StreamHandle.migrations` of each stage by its name."""
        return {name: handle.migrations() for name, handle in self.stages.items()}

    def ended(self, timeout_s: float | None = None) -> bool:
        """Waits until all stages have ended and returns whether they have."""
        end = None if timeout_s is None else time.monotonic() + timeout_s
        self._watch.join(timeout_s)
        return not self._watch.is_alive() and all(
            handle.ended(threading.TIMEOUT_MAX if end is None else max(0.0, end - time.monotonic()))
            for handle in self.stages.values()  # one that has not ended in its time may still run
        )

    def await_end(self, timeout_s: float | None = None) -> bool:
        """As `ended`; raises what a stage failed with."""
        ended = self.ended(timeout_s)
        for name, handle in self.stages.items():
            if (error := handle.failed) is not None:
                raise StateError(f"The stage {name} has failed: {error}") from error
        return ended

    @property
    def wants_restart(self) -> bool:
        """Whether a stage has ended because its mechanism asks for a new Spark session, see `StreamHandle`."""
        return any(handle.wants_restart for handle in self.stages.values())

    def stop(self) -> None:
        """Ends all stages between two epochs, the first one first; raises what one failed with.

        What a stage has not read of the results before it waits in their topic for the next start.
        """
        close_all([handle.stop for handle in self.stages.values()], "chain")

    def _end_together(self) -> None:
        """Waits until a stage has ended, and ends the others.

        Where it asks for a new session, as its migration does, those that migrate get time to come to the same: else
        they would ask for another one.
        """
        handles = list(self.stages.values())
        while not any(handle.ended(0) for handle in handles):
            handles[0].ended(_LOOK_S)
        end = time.monotonic() + _GRACE_S
        for handle in handles if self.wants_restart else ():
            while handle.status()["migrating"] and not handle.ended(_LOOK_S) and time.monotonic() < end:
                pass
        end_all([handle.stop for handle in handles if not handle.ended(0)], "chain")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.stop()
        else:  # that error is the one to see
            end_all([handle.stop for handle in self.stages.values()], "chain")


def chain(
    df: DataFrame | Mapping[str, DataFrame],
    stages: Sequence[Stage],
    *,
    name: str,
    bootstrap: str,
    results: Output | ForeachBatch | None,
    state_dir: str | Path,
    checkpoint: str | Path,
    partitions: int = 8,
    producer: Mapping[str, str] | None = None,
    source: Mapping[str, str] | None = None,
    **options: Any,
) -> Chain:
    """Starts the queries of a chain, the first one first, and returns their handle.

    Args:
        df: the input of the first stage, see `impls.stream`; or several by names, for `Stage.inputs`.
        stages: two or more, in an order in which each reads only from those before it.
        name: of the chain, as of a stage: the results of a stage go through the topic NAME.STAGE, which is made if it
            is not there, with the broker's own retention. A stage that is away for longer loses nothing: it ends.
            A chain that begins makes them, or finds them empty.
        bootstrap: addresses of the broker that has these topics.
        results: where the last stage's results go, see `impls.stream`.
        state_dir: folder for the state, with one for each stage.
        checkpoint: folder for the checkpoints, likewise; the same folder again continues the chain.
        partitions: of the topics that are made.
        producer: librdkafka's settings for them, such as those of SASL and TLS.
        source: options of Spark's Kafka source for them (kafka.*).
        options: what all stages are given besides: mode, real_time, mechanism, durability, ...; of log_dir each has a
            folder in it.

    Raises:
        UsageError: as `impls.stream`; a name that cannot be used, or that two have; an input that is not there; a stage
            that nobody reads; a topic that cannot be made, has another chain's results, or has lost some that a stage
            is still to read; a stage with event time that reads an input of the chain, or a stage without, beside one
            with event time.
    """
    if any(option.lower() == "startingoffsets" for option in source or {}):
        raise UsageError("The stages of a chain read all of each other's results: leave startingOffsets out of source.")
    sources = dict(df) if isinstance(df, Mapping) else {_INPUT: df}
    inputs = inputs_of(name, stages, list(sources))
    settings = dict(producer or {})
    topics = {stage.name: f"{name}.{stage.name}" for stage in stages[:-1]}
    between = {one: Output(bootstrap, topic, partitions, settings, micros=True) for one, topic in topics.items()}
    _make_topics(list(between.values()))
    readers = {one: [stage.name for stage in stages if one in inputs[stage.name]] for one in between}
    for one, out in between.items():
        _check_topic(out, one, readers[one], Path(checkpoint))
    schemas, spark = {stage.name: stage.schema for stage in stages}, next(iter(sources.values())).sparkSession

    def read(one: str) -> DataFrame:
        return sources[one] if one in sources else results_of(spark, between[one], schemas[one], options=source)

    started: dict[str, StreamHandle] = {}
    try:
        for stage in stages:
            where = {"state_dir": Path(state_dir) / stage.name, "checkpoint": Path(checkpoint) / stage.name}
            given = {**options, **_log_of(stage, options), **stage.options, **where, "workers": stage.workers}
            prepare = _following(started, between, inputs[stage.name])
            frame = stage.select(*map(read, inputs[stage.name]))
            out_to = between.get(stage.name, results)
            started[stage.name] = stage.start(frame, **given, results=out_to, _prepare=prepare)
    except BaseException:
        end_all([handle.stop for handle in started.values()], "chain")
        raise
    return Chain(started)


def _log_of(stage: Stage, options: Mapping[str, Any]) -> dict[str, str]:
    place = options.get("log_dir")
    return {} if place is None else {"log_dir": below(str(place), stage.name)}


def _following(
    started: Mapping[str, StreamHandle], between: Mapping[str, Output], inputs: Sequence[str]
) -> Preparation:
    """Returns what lets a stage's watermark follow the stages that it reads, where all of them have event time."""
    senders = {one: started[one].changes.driver for one in inputs if one in started}
    timed = {one: driver for one, driver in senders.items() if driver.controller.clock is not None}
    others = set(inputs) - timed.keys()
    if not senders or (not timed and others == senders.keys()):
        return NOTHING  # all that it reads is of one kind
    return Preparation(follow=_refuse_mixed if others else partial(_follow, timed, between))


def _follow(senders: Mapping[str, Driver], between: Mapping[str, Output], *how: Any) -> None:
    follow([sending(driver, _ends_of(between[one])) for one, driver in senders.items()], *how)


def _refuse_mixed(*_: object) -> None:
    raise UsageError(
        "A stage with event time reads another stage, and beside it an input of the chain, or one stage with event "
        "time and one without: nobody knows how far in event time that is. Let it go through a stage with event time."
    )


_Asked = TypeVar("_Asked")


def _asking_of(out: Output, ask: Callable[[Consumer, list[tuple[str, int]]], _Asked]) -> Callable[[], _Asked]:
    """Returns what asks the broker of a topic's partitions."""
    client = asking({"bootstrap.servers": out.bootstrap, **security_of(out.options)})
    return partial(ask, client, [(out.topic, number) for number in range(out.partitions)])


def _ends_of(out: Output) -> Callable[[], dict[tuple[str, int], int]]:
    """Returns what asks the broker up to where a topic has to be read."""
    return _asking_of(out, ends_to_read)


def _check_topic(out: Output, stage: str, readers: Sequence[str], checkpoint: Path) -> None:
    """Raises UsageError where a topic has what its stage has not sent, or lacks what a stage has not read.

    Args:
        out: the topic.
        stage: whose results it is for.
        readers: the stages that read it.
        checkpoint: of the chain.
    """
    out.check()
    try:
        kept = _asking_of(out, ranges)()
    except StateError as error:
        raise UsageError(str(error)) from error
    begun = {one for one in readers if any((checkpoint / one / "spark" / "sources").glob("*/0"))}
    late = sorted(set(readers) - begun)
    if not is_begun(checkpoint / stage):
        if any(end for _, end in kept.values()):
            raise UsageError(
                f"The topic {out.topic} has results of another chain, or had some, which the next stage would read: "
                "give this chain another name or the other one's checkpoint, or delete the topic."
            )
        if begun:
            raise UsageError(
                f"The checkpoint of the stage {stage} is gone from {checkpoint}, and {min(begun)} has its results: put "
                "it back, or begin the chain with a new checkpoint."
            )
    elif late and any(low for low, _ in kept.values()):
        raise UsageError(
            f"The topic {out.topic} no longer has the first results of {stage}, which {late[0]} has not read: begin "
            "the chain with a new name and checkpoint, and let the topic keep them for longer."
        )


def _make_topics(outputs: Sequence[Output]) -> None:
    """Makes the topics that are not there; raises UsageError where the broker does not."""
    admin = AdminClient(quiet(outputs[0].bootstrap, security_of(outputs[0].options)))
    asked = [NewTopic(out.topic, out.partitions) for out in outputs]
    for topic, made in admin.create_topics(asked, request_timeout=_TOPIC_DEADLINE_S).items():
        try:
            made.result(_TOPIC_DEADLINE_S)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise UsageError(f"The topic {topic} cannot be made: {error.args[0].str()}.") from error
