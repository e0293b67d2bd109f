"""What driver and long-lived tasks say to each other in real-time mode.

An epoch goes in this course, a version of Megaphone's (Hoffmann et al., VLDB 2019, section 4) whose timestamps are the
blobs of a channel. Every worker gets the order, every router the routing. A router switches at once and says how many
blobs each worker has been sent until then. From these *marks* a worker knows when nothing more comes to it by the old
routing: then its bins that moved away are *final*, their new owners pull them, and the epoch ends.

With event time a worker that is final also says how far its records have come. When all are, every record that was sent
before a router switched is applied, so the driver tells them the watermark that follows, and they run the timers up to
it before they end the epoch. No durable plan has it: a worker that has run timers has seen all of their records,
whatever comes later, and keeps the watermark with its state. A session that follows in the same epoch may tell the
others a lower one: then their bins wait for the next epoch, as those do that are on their way.

Behind the epoch every record that a router sent before it switched is applied, or queued for good: nobody needs it
again when the batch comes once more.

A *session* is the set of tasks of one Spark batch: F tasks (*routers*), one per partition of the source, and S tasks
(*workers*), one per slot. All of them are connected to the driver.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from impls.protocol.order import EpochOrder

Role = Literal["router", "worker"]
"""F and S."""


@dataclass(frozen=True)
class Hello:
    """A task's first word to the driver.

    Attributes:
        role: what the task is.
        index: its number among those of its role; a worker's is its slot.
        of: tasks of this role in the session: partitions of the source, or slots. A router says 0 as it does not know;
            the driver looks it up by the stage before anybody hears the message.
        run: random name of this start of the query.
        batch: Spark's number of the batch.
        pid: the worker's process; a router's is 0, as it runs in the JVM of the driver.
        stage: number of its stage in Spark.
        started: when the worker's process began, in clock ticks since the host did; 0 where that is not known.
    """

    role: Role
    index: int
    of: int
    run: str
    batch: int
    pid: int
    stage: int = -1
    started: int = 0


@dataclass(frozen=True)
class Route:
    """Driver to F: from the next blob on, route by this.

    Attributes:
        epoch: the epoch whose routing it is.
        routing: worker of each bin, shape (bins,).
        until: (partition of the input, offset) up to which F waits to have routed, a limited time, where it has routed
            records of the partition: what timers of the epoch wait for.
        last: the query ends with the epoch: F sends nothing more.
    """

    epoch: int
    routing: NDArray[np.int32]
    until: tuple[tuple[int, int], ...] = ()
    last: bool = False


@dataclass(frozen=True)
class Routed:
    """F to driver: it routes by the epoch's routing now.

    Attributes:
        epoch: that of the `Route`.
        sent: blobs that it sent to each slot in this session until then.
        next: (partition of the input, offset behind its last record in those blobs).
    """

    epoch: int
    sent: tuple[int, ...]
    next: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class NewEpoch:
    """Driver to S: an epoch begins, this is its order."""

    order: EpochOrder


@dataclass(frozen=True)
class Marks:
    """Driver to S: how many blobs every F sent to it before it routed by the epoch's routing.

    Attributes:
        epoch: the epoch.
        counts: (index of F, blobs).
        settled: the epoch before had the same routing, so every worker is final already.
        rises: a `Watermark` follows, without which no worker ends the epoch.
    """

    epoch: int
    counts: tuple[tuple[int, int], ...]
    settled: bool = False
    rises: bool = False


@dataclass(frozen=True)
class Final:
    """S to driver, and from there to all S: the worker has applied and committed all blobs that its marks count.

    Attributes:
        epoch: the epoch.
        worker: its number.
        times: (partition of the input, highest event time) of the records in them.
    """

    epoch: int
    worker: int
    times: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Watermark:
    """Driver to S: all workers are final, and run the timers up to a time before they end the epoch.

    Attributes:
        epoch: the epoch.
        watermark: the time, None before there is one.
    """

    epoch: int
    watermark: int | None


@dataclass(frozen=True)
class Ended:
    """S to driver: the worker has ended the epoch.

    Attributes:
        epoch: the epoch.
        worker: its number.
        report: `Report.to_json()`.
        cells: latency cells, dtype `impls.worker.cells.CELL`.
        due: time of the earliest timer of its bins, None where there is none.
    """

    epoch: int
    worker: int
    report: bytes
    cells: bytes
    due: int | None = None


@dataclass(frozen=True)
class Due:
    """S to driver: the input has come to the time of the worker's earliest timer, which the next epoch runs.

    Behind another query, whose results come in no order of their times: records have set the first timer that there is.

    Attributes:
        worker: its number.
        at: the time of that timer; None where the driver knows it.
    """

    worker: int
    at: int | None = None


@dataclass(frozen=True)
class Alive:
    """S to driver, at most once a second: the worker goes on with an epoch that takes long, as when it is rebuilt.

    It follows a step of the work and no clock, so a worker that hangs does not say it.
    """

    worker: int


@dataclass(frozen=True)
class Closed:
    """S to driver: the worker has closed its environment, and writes and sends nothing any more."""

    worker: int


@dataclass(frozen=True)
class Failed:
    """A task to driver: it ends with an error.

    Attributes:
        role, index: the task.
        kind: class of the error.
        text: its message.
    """

    role: Role
    index: int
    kind: str
    text: str


Said = Routed | Final | Ended | Due | Alive | Closed | Failed


@dataclass(frozen=True)
class Say:
    """An instruction: say something to a task."""

    role: Role
    index: int
    message: Route | NewEpoch | Marks | Final | Watermark
