"""Starts another engine's count on a run's topics, its state made beforehand by one record per key."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from confluent_kafka import Producer

from generators.stream import keycount_values
from harness.experiment.description import Run
from harness.lab.peers.engine import Engine, Job
from harness.lab.peers.flink.engine import FlinkEngine
from harness.lab.peers.streams.engine import StreamsEngine
from harness.lab.topics import create_topics
from harness.run.peer import PeerQuery
from impls import catalog
from impls.errors import StateError

__all__ = ["start_peer"]

_PRELOAD = "-preload"
_CHUNK = 50_000
_FLUSH_S = 300.0
_ENGINES: dict[str, Callable[[Any, Job], Engine]] = {"flink": FlinkEngine, "kafka-streams": StreamsEngine}


def start_peer(
    run: Run,
    folder: Path,
    bootstrap: str,
    topics: tuple[str, str],
    *,
    on_epoch: Callable[[dict[str, Any], list[dict[str, Any]]], None],
    on_event: Callable[[str, dict[str, Any]], None],
) -> PeerQuery:
    """Fills the topic that makes the state, and starts the engine's job on it and on the input topic.

    Raises:
        UsageError: the engine's programs cannot be fetched, compiled or started.
        StateError: the broker does not take the records.
    """
    experiment, preload = run.experiment, topics[0] + _PRELOAD
    partitions = (
        experiment.input_partitions
    )  # of both: where they differ, Kafka Streams' newer protocol reads the fewer
    create_topics(bootstrap, {preload: partitions})
    _fill(bootstrap, preload, experiment.keys, partitions)
    place = (folder / "peer").resolve()
    job = Job(bootstrap, (topics[0], preload), topics[1], f"{topics[0]}-count", experiment.most_workers, place)
    given = catalog.baseline(run.mechanism, **run.options())
    engine = _ENGINES[given.engine](given, job)
    return PeerQuery(
        engine, job, workers=experiment.workers, bins=experiment.bins, on_epoch=on_epoch, on_event=on_event
    )


def _fill(bootstrap: str, topic: str, keys: int, partitions: int) -> None:
    """Sends one record per key, of time 0, in key-count's form."""
    failures: list[str] = []
    settings = {"bootstrap.servers": bootstrap, "linger.ms": 50, "queue.buffering.max.messages": 4 * _CHUNK}
    producer = Producer({**settings, "delivery.report.only.error": True, "log_level": 0})

    def failed(error: Any, _: Any) -> None:
        failures.append(str(error))

    for begin in range(0, keys, _CHUNK):
        numbers = np.arange(begin, min(begin + _CHUNK, keys), dtype=np.int64)
        for number, value in enumerate(keycount_values(numbers, np.zeros(len(numbers), np.int64)), begin):
            while True:
                try:
                    producer.produce(topic, value, partition=number % partitions, on_delivery=failed)
                    break
                except BufferError:
                    producer.poll(0.1)
        producer.poll(0)
    if producer.flush(_FLUSH_S) or failures:
        raise StateError(f"The records that make the state were not taken: {(failures or ['no answer'])[0]}.")
