"""The ways in which Flink rescales a keyed count; it is an engine of its own, with processes and state of its own."""

from dataclasses import dataclass
from typing import ClassVar

from impls.errors import UsageError

_BACKENDS, _SWITCH = ("rocksdb", "hashmap"), ("on", "off")


@dataclass(frozen=True)
class Flink:
    """A Flink job that counts keys.

    Attributes:
        backend: where state is: rocksdb (on disk, incremental checkpoints) or hashmap (on the heap).
        checkpoint_s: from one checkpoint to the next.
        cooldown_s: for which the adaptive scheduler waits behind a rescale before the next one.
        buffer_ms: longest time that a record waits for others before it goes from task to task; 0 for none.
        compression: on or off, of checkpoints and savepoints.
        memory_mb: of the process that runs the tasks.
    """

    backend: str = "rocksdb"
    checkpoint_s: int = 10
    cooldown_s: int = 30
    buffer_ms: int = 5
    compression: str = "on"
    memory_mb: int = 4_400
    engine: ClassVar[str] = "flink"
    mode: ClassVar[str] = "real-time"
    queries: ClassVar[tuple[str, ...]] = ("q5", "q8")
    adaptive: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.backend not in _BACKENDS:
            raise UsageError(f"Flink's state backend is {' or '.join(_BACKENDS)}, not {self.backend!r}.")
        if self.compression not in _SWITCH:
            raise UsageError(f"Flink's compression is on or off, not {self.compression!r}.")
        if not 1 <= self.checkpoint_s <= 3_600 or not 0 <= self.buffer_ms <= 10_000:
            raise UsageError("Flink's checkpoint_s is from 1 to 3600, its buffer_ms from 0 to 10000.")
        if not 0 <= self.cooldown_s <= 3_600:
            raise UsageError(f"Flink's cooldown_s is from 0 to 3600, not {self.cooldown_s}.")
        if self.memory_mb < 1_500:
            raise UsageError(f"Flink's tasks need a memory_mb of at least 1500, not {self.memory_mb}.")


@dataclass(frozen=True)
class FlinkAdaptive(Flink):
    """Flink's adaptive scheduler is given another parallelism; it restarts the tasks from the next checkpoint."""

    adaptive: ClassVar[bool] = True


@dataclass(frozen=True)
class FlinkSavepoint(Flink):
    """Flink's job is stopped with a native savepoint, and started from it with another parallelism."""


BASELINES = {"flink-adaptive": FlinkAdaptive, "flink-savepoint": FlinkSavepoint}
