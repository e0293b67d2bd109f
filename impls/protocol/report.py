"""What a worker answers to an epoch."""

from dataclasses import dataclass, field, fields
from typing import Any

from impls.protocol.jsontext import from_text, to_text

__all__ = ["PARTS", "PHASES", "Report"]

PHASES = ("open", "recover", "drop", "pull", "apply", "commit", "log", "send", "snapshot", "replicate")
PARTS = ("read",)  # inside other phases: a shared store's answers


@dataclass(slots=True)
class Report:
    """What a worker did in an epoch; times in milliseconds, sizes in bytes.

    Attributes:
        worker: the worker's number; `attempt` counts the task's attempts from 0, `repeated` says the state was
            already committed by an earlier attempt.
        records: records applied; `results`: results sent.
        rates: (bins, records that arrived) per bin seen.
        queued: (bins, records) of all non-empty queues after the epoch; `queue_bytes` their stored size.
        sizes: (bins, bytes) of bins whose state size changed.
        pulled: bins pulled; `pulled_entries`: what the store has of each, empty if that is shared; `pulled_bytes`:
            their size; `restored`: how many of them came from the checkpoint.
        recovered: why the worker's environment was rebuilt in this epoch, "" if it was not.
        replicas: [bin, epoch it shows now] of the replicas brought up; `replicated_bytes`: what was read for them;
            `shadowed`: records processed a second time.
        changed: bins whose state, queue or location changed; `log_bytes`: size of the changelog frame.
        snapshot: bins snapshotted; `snapshot_bytes`: size of their file.
        lmdb_bytes, outbox_bytes: what the environment and the outbox occupy.
        cache_hits, cache_misses: entries of a shared store that were in this process's cache, and that were not.
        times, partials, waits: as in an observation, of operators with event time; `late`: records below the watermark;
            `fired`: timers.
        done_us: wall clock when the last result was acknowledged; `negative`: records with a latency below zero.
        ms: time by phase.
    """

    worker: int
    attempt: int = 0
    repeated: bool = False
    records: int = 0
    results: int = 0
    rates: tuple[list[int], list[int]] = field(default_factory=lambda: ([], []))
    queued: tuple[list[int], list[int]] = field(default_factory=lambda: ([], []))
    queue_bytes: int = 0
    sizes: tuple[list[int], list[int]] = field(default_factory=lambda: ([], []))
    pulled: list[int] = field(default_factory=list)
    pulled_entries: list[int] = field(default_factory=list)
    pulled_bytes: int = 0
    restored: int = 0
    replicas: list[list[int]] = field(default_factory=list)
    replicated_bytes: int = 0
    shadowed: int = 0
    recovered: str = ""
    changed: list[int] = field(default_factory=list)
    log_bytes: int = 0
    snapshot: list[int] = field(default_factory=list)
    snapshot_bytes: int = 0
    lmdb_bytes: int = 0
    outbox_bytes: int = 0
    cache_hits: int = 0
    cache_misses: int = 0
    done_us: int = 0
    negative: int = 0
    times: list[list[int]] = field(default_factory=list)
    partials: list[list[Any]] = field(default_factory=list)
    waits: list[int] = field(default_factory=list)
    late: int = 0
    fired: int = 0
    pid: int = 0
    ms: dict[str, float] = field(default_factory=dict)

    def to_json(self) -> bytes:
        """Returns the report as one line of JSON, without what is 0 or empty."""
        return to_text({"worker": self.worker, **{name: value for name in _REPORTED if (value := getattr(self, name))}})

    @classmethod
    def from_json(cls, text: str | bytes) -> "Report":
        """Reads what `to_json` wrote."""
        return cls(**from_text(text))


_REPORTED = tuple(field.name for field in fields(Report))
