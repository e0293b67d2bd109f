"""What a worker answers to an epoch."""

from dataclasses import dataclass, field, fields
from typing import Any

from impls.protocol.jsontext import from_text, to_text

PHASES = ("open", "recover", "drop", "pull", "apply", "commit", "log", "send", "snapshot", "replicate")
PARTS = ("read",)  # inside other phases: a shared store's answers

Pairs = tuple[list[int], list[int]]


def _no_pairs() -> Pairs:
    return [], []


@dataclass(frozen=True)
class Queues:
    """The queues after the epoch.

    Attributes:
        lengths: (bins, records) of all that are not empty.
        bytes: their stored size.
    """

    lengths: Pairs = field(default_factory=_no_pairs)
    bytes: int = 0


@dataclass(frozen=True)
class MovesReport:
    """The pulls of the epoch.

    Attributes:
        bins: those pulled.
        entries: what the store has of each, empty if that is shared.
        bytes: what was shipped for them.
        restored: how many of them came from the checkpoint.
        network: [host, bytes, milliseconds] of each other host from which some came over the network.
        lost: [worker, why] of each whose bins came from the checkpoint.
    """

    bins: list[int] = field(default_factory=list)
    entries: list[int] = field(default_factory=list)
    bytes: int = 0
    restored: int = 0
    network: list[list[Any]] = field(default_factory=list)
    lost: list[list[Any]] = field(default_factory=list)


@dataclass(frozen=True)
class Replication:
    """The replicas brought up in the epoch.

    Attributes:
        replicas: [bin, epoch that its replica shows now].
        bytes: what was read for them.
        standby_records: records processed a second time.
    """

    replicas: list[list[int]] = field(default_factory=list)
    bytes: int = 0
    standby_records: int = 0


@dataclass(frozen=True)
class Written:
    """A file of the epoch: of the changelog, the bins whose state, queue or location changed; or of a snapshot.

    Attributes:
        bins: those in it.
        bytes: its size; besides: of the changelog, what results and report take up in it more.
    """

    bins: list[int] = field(default_factory=list)
    bytes: int = 0
    besides: int = 0


@dataclass(frozen=True)
class EventTimes:
    """What an operator with event time has seen and done.

    Attributes:
        times, waits: as in an observation.
        late: records below the watermark.
        fired: timers.
        until: up to where timers ran, None for the watermark of the plan.
    """

    times: list[list[int]] = field(default_factory=list)
    waits: list[int] = field(default_factory=list)
    late: int = 0
    fired: int = 0
    until: int | None = None


@dataclass(frozen=True)
class CacheUse:
    """Entries of a shared store that were in this process's cache, and that were not."""

    hits: int = 0
    misses: int = 0


@dataclass(frozen=True)
class Pipelines:
    """What a worker has done with versions of the pipeline.

    Attributes:
        turned: [bin, shape that its state has now].
        tried: records that a version was tried on.
        failed: [version, why], and the bin where its `back` has failed on the bin's state.
    """

    turned: list[list[int]] = field(default_factory=list)
    tried: int = 0
    failed: list[list[Any]] = field(default_factory=list)


_KINDS: dict[str, type[Any]] = {
    "queues": Queues,
    "moves": MovesReport,
    "replication": Replication,
    "changelog": Written,
    "snapshot": Written,
    "event_time": EventTimes,
    "cache": CacheUse,
    "pipelines": Pipelines,
}
_NOTHING = {name: kind() for name, kind in _KINDS.items()}  # shared by all reports: a part is set whole, never changed


@dataclass(slots=True)
class Report:
    """What a worker did in an epoch; times in milliseconds, sizes in bytes. A part not set says that nothing happened.

    Attributes:
        worker: the worker's number; `attempt` counts the task's attempts from 0, `pid` is its process; `repeated` says
            the state was already committed by an earlier attempt.
        recovered: why the worker's environment was rebuilt in this epoch, "" if it was not.
        host, server: on a cluster the name of the worker's host and the address at which that hands out bins.
        records: records applied; `results`: results sent; `refused`: records set aside.
        rates: (bins, records that arrived) per bin seen.
        sizes: (bins, bytes) of bins whose state size changed.
        lmdb_bytes, outbox_bytes: what the environment and the outbox occupy.
        done_us: wall clock when the last result was acknowledged; `negative`: records with a latency below zero.
        ms: time by phase.
        commits: those of an epoch that has several, in real time; `breakdown`: mean ms of a record by step, see
            `impls.realtime.breakdown`.
        queues, moves, replication, changelog, snapshot, event_time, cache, pipelines: see their classes.
    """

    worker: int
    attempt: int = 0
    repeated: bool = False
    recovered: str = ""
    host: str = ""
    server: str = ""
    records: int = 0
    results: int = 0
    refused: int = 0
    rates: Pairs = field(default_factory=_no_pairs)
    sizes: Pairs = field(default_factory=_no_pairs)
    lmdb_bytes: int = 0
    outbox_bytes: int = 0
    done_us: int = 0
    negative: int = 0
    pid: int = 0
    ms: dict[str, float] = field(default_factory=dict)
    commits: int = 0
    breakdown: dict[str, float] = field(default_factory=dict)
    queues: Queues = _NOTHING["queues"]
    moves: MovesReport = _NOTHING["moves"]
    replication: Replication = _NOTHING["replication"]
    changelog: Written = _NOTHING["changelog"]
    snapshot: Written = _NOTHING["snapshot"]
    event_time: EventTimes = _NOTHING["event_time"]
    cache: CacheUse = _NOTHING["cache"]
    pipelines: Pipelines = _NOTHING["pipelines"]

    def to_json(self) -> bytes:
        """Returns the report as one line of JSON, without what is 0 or empty."""
        data: dict[str, Any] = {"worker": self.worker}
        for name in _PLAIN:
            if value := getattr(self, name):
                data[name] = value
        for name, nothing in _NOTHING.items():
            if (part := getattr(self, name)) is not nothing:
                data[name] = {inner: value for inner, value in vars(part).items() if value}
        return to_text(data)

    @classmethod
    def from_json(cls, text: str | bytes) -> "Report":
        """Reads what `to_json` wrote."""
        data = from_text(text)
        for name in _KINDS.keys() & data.keys():
            data[name] = _KINDS[name](**data[name])
        return cls(**data)


_PLAIN = tuple(part.name for part in fields(Report) if part.name not in {"worker", *_KINDS})
