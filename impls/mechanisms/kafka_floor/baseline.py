"""The floor: what the same load costs a plain consumer, a dictionary and a producer."""

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class KafkaFloor:
    """One process counts keys in a dictionary: nothing is durable and nothing moves."""

    engine: ClassVar[str] = "kafka-floor"
    mode: ClassVar[str] = "real-time"
    queries: ClassVar[tuple[str, ...]] = ()


BASELINES = {"kafka-floor": KafkaFloor}
