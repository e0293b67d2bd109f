"""The input of every step of a query: what is constant for the query's life, and the task of one epoch."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from impls.durability.files import Files
from impls.durability.restore import no_progress
from impls.durability.source import RestoreSource
from impls.operators.base import Operator
from impls.operators.blame import Place
from impls.protocol.mechanism import Shared
from impls.protocol.order import EpochOrder
from impls.transfer.settings import Transfer
from impls.worker.sinks import Sink


@dataclass(frozen=True)  # without slots, as EpochOrder
class QuerySpec:
    """What is constant for a query's life.

    Attributes:
        query: identity of the query; an environment of another query is refused.
        bins: number of bins.
        operator: the keyed operator.
        output: where results go.
        state_dir: folder of the workers' environments on each host.
        files: the durable files of the query; None for durability "none".
        shared: the store that all workers share; None when each has an environment of its own.
        transfer: how bins go from host to host; None where there is one host, or they come from the checkpoint.
        on_error: what becomes of records that cannot be applied: "fail" or "skip", see `impls.worker.refused`.
        topics: names of the input's topics by their numbers, for messages.
        repeats: a row of the input may come a second time, as in real time after a failure: bins keep the offsets that
            they have applied.
        linked: the input has results of other queries: bins keep the numbers that they have applied, see
            `impls.spark.links`.
    """

    query: str
    bins: int
    operator: Operator
    output: Sink
    state_dir: str
    files: Files | None = None
    shared: Shared | None = None
    transfer: Transfer | None = None
    repeats: bool = False
    on_error: str = "fail"
    topics: Mapping[int, str] = field(default_factory=dict)
    linked: bool = False

    @property
    def fsync(self) -> bool:
        """Whether what is committed must survive the failure of its host."""
        return self.files is not None and self.files.fsync

    def source(self) -> RestoreSource | None:
        """Returns where bins can be restored from, None for durability "none"."""
        return None if self.files is None else RestoreSource(self.files, self.query, self.bins, self.operator)


@dataclass(frozen=True)
class Task:
    """One attempt of one worker's step in one epoch.

    Attributes:
        spec: the query.
        order: the epoch.
        worker: the worker's number.
        attempt: counts from 0.
        host: name of the host on which it runs, "" where there is only one.
        refused: a version of the pipeline that has failed here, and a sentence about it; its bins run without it.
        stuck: bins whose state its `back` has failed on, each with a sentence: they keep shape and version.
        suspects: records on which the refused version has failed; if its parent fails on them too, it is none of the
            version's faults. `before` is the task before it refused the version.
        set_aside: records that are left out, as the operator has failed on them here.
        single: an epoch has one commit, which every attempt makes alike, as in micro-batches.
        doubtful: something has failed, and which records are to blame is to be found out.
        risen: the watermark, where it has risen within the epoch.
        progress: called behind each step of what may take long: a bin that is created or pulled, a file that is read.
    """

    spec: QuerySpec
    order: EpochOrder
    worker: int
    attempt: int = 0
    host: str = ""
    refused: tuple[int, str] | None = None
    stuck: tuple[tuple[int, str], ...] = ()
    suspects: tuple[Place, ...] = ()
    before: "Task | None" = None
    set_aside: tuple[Place, ...] = ()
    single: bool = True
    doubtful: bool = False
    risen: int | None = None
    progress: Callable[[], None] = no_progress

    @property
    def state_dir(self) -> str:
        """Folder of the environments on this host: of its own, as hosts may share a file system."""
        return f"{self.spec.state_dir}/{self.host}" if self.host else self.spec.state_dir

    @property
    def careful(self) -> bool:
        """Whether an operator is to find all records that it fails on, as it has failed on one."""
        return self.spec.on_error == "skip" and bool(self.doubtful or self.set_aside or self.suspects)

    @property
    def where(self) -> dict[str, Any]:
        """What `impls.faults.fault` is told of where the task is."""
        moving = self.order.written.migrating
        return {
            "query": self.spec.query, "worker": self.worker, "epoch": self.epoch, "attempt": self.attempt,
            "migrating": moving,
        }  # fmt: skip

    @property
    def watermark(self) -> int | None:
        """The time up to which timers run, None before there is one."""
        return self.order.written.watermark if self.risen is None else self.risen

    @property
    def epoch(self) -> int:
        """The epoch."""
        return self.order.written.epoch
