"""The ways in which Kafka Streams rescales a keyed count; it is a library, here in processes of its own."""

from dataclasses import dataclass
from typing import ClassVar

from impls.errors import UsageError

_PLACES, _GUARANTEES = ("threads", "instance"), ("at_least_once", "exactly_once_v2")


@dataclass(frozen=True)
class KafkaStreams:
    """A Kafka Streams application that counts keys in RocksDB, with a changelog topic.

    Attributes:
        added: what a rescale adds: threads of the instance there is, or an instance with a disk of its own.
        guarantee: at_least_once or exactly_once_v2.
        commit_ms: from one commit to the next.
        memory_mb: heap of all instances together, of which each has an equal part; RocksDB's memory is beside it.
    """

    added: str = "threads"
    guarantee: str = "at_least_once"
    commit_ms: int = 30_000
    memory_mb: int = 4_400
    engine: ClassVar[str] = "kafka-streams"
    mode: ClassVar[str] = "real-time"
    queries: ClassVar[tuple[str, ...]] = ("q8",)
    protocol: ClassVar[str] = "classic"

    def __post_init__(self) -> None:
        if self.added not in _PLACES:
            raise UsageError(f"A rescale of Kafka Streams adds {' or '.join(_PLACES)}, not {self.added!r}.")
        if self.guarantee not in _GUARANTEES:
            raise UsageError(f"Kafka Streams' guarantee is {' or '.join(_GUARANTEES)}, not {self.guarantee!r}.")
        if not 1 <= self.commit_ms <= 600_000:
            raise UsageError(f"Kafka Streams' commit_ms is from 1 to 600000, not {self.commit_ms}.")
        if self.memory_mb < 512:
            raise UsageError(f"Kafka Streams needs a memory_mb of at least 512, not {self.memory_mb}.")


@dataclass(frozen=True)
class KafkaStreamsClassic(KafkaStreams):
    """Kafka Streams adds or removes threads; the classic group protocol assigns tasks, with warm-up replicas."""


@dataclass(frozen=True)
class KafkaStreamsInstance(KafkaStreamsClassic):
    """Kafka Streams gets a second instance, whose tasks read their changelog first; classic group protocol."""

    added: str = "instance"


@dataclass(frozen=True)
class KafkaStreamsStreams(KafkaStreams):
    """Kafka Streams adds or removes threads; the broker assigns tasks by the group protocol "streams" (KIP-1071)."""

    protocol: ClassVar[str] = "streams"


BASELINES = {
    "kafka-streams-classic": KafkaStreamsClassic,
    "kafka-streams-instance": KafkaStreamsInstance,
    "kafka-streams-streams": KafkaStreamsStreams,
}
