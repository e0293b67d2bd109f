"""The step S of a real-time query in Spark's tasks: it takes the blobs of one slot, and runs the turns of its worker.

The blobs come from the step F, the routers, which run in the JVM (`Router.java`).
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql.types import BinaryType, IntegerType, StructField, StructType

from impls.errors import StateError
from impls.protocol.session import Failed, Hello
from impls.realtime.blobs import Blob, decode
from impls.realtime.flow import BatchingWindow, Flow, Inbox, Pace
from impls.realtime.link import Link
from impls.realtime.worker import TurnWorker
from impls.spark.realtime.settings import Wiring
from impls.worker.query import QuerySpec

ROUTED_SCHEMA = StructType([StructField("slot", IntegerType()), StructField("blob", BinaryType())])
DONE_SCHEMA = "nothing int"
_BLOB_BYTES_MAX = 16 << 20  # of blobs that come during a turn
_END_DEADLINE_S = 60.0
_LOOK_S = 0.05

_Flow = Callable[[int, int], None]  # takes records applied since the last call, and how many may be on their way


@contextmanager
def _joined(wiring: Wiring) -> Iterator[tuple[Link, Hello]]:
    """Connects a task to the driver, which hears with what the task fails."""
    hello = wiring.hello()
    with wiring.connect() as link:
        link.say(hello)
        try:
            yield link, hello
        except Exception as error:
            link.say(Failed(hello.role, hello.index, type(error).__name__, str(error)))
            raise


def _in_thread(name: str, inbox: Inbox[Any], work: Callable[[], None]) -> None:
    """Runs work in a thread; what it fails with is raised where the inbox is emptied."""

    def guarded() -> None:
        try:
            work()
        except Exception as error:
            inbox.fail(error)

    threading.Thread(target=guarded, name=name, daemon=True).start()


def _heard(link: Link) -> Iterator[Any]:
    """Yields what the driver says; raises StateError when it is gone."""
    try:
        while True:
            yield link.hear()
    except EOFError:
        raise StateError("The driver has ended the connection.") from None


def _now_us() -> int:
    return time.time_ns() // 1000


class Turns(Protocol):
    """A worker that applies what it is given, turn by turn; see `impls.realtime.worker.TurnWorker`."""

    @property
    def spare(self) -> bool:
        """Whether a step would do nothing before something comes."""

    @property
    def waiting(self) -> int:
        """Blobs that were taken and are not applied."""

    @property
    def pace(self) -> Pace:
        """How fast it is."""

    def hear(self, message: Any) -> None:
        """Takes a message of the driver."""

    def take(self, blobs: Sequence[Blob]) -> None:
        """Takes blobs in the order in which they came."""

    def step(self) -> bool:
        """Does one turn and returns whether more is to be done at once."""

    def close(self) -> None:
        """Frees what is open."""


MakeWorker = Callable[[int, int, Callable[[Any], None]], Turns]
"""Makes the worker of (number, Spark's batch, how to say something to the driver)."""


def worker_maker(spec: QuerySpec) -> MakeWorker:
    """Returns what makes the worker of an S task."""

    def make(worker: int, batch: int, say: Callable[[Any], None]) -> Turns:
        return TurnWorker(spec, worker, batch=batch, say=say)

    return make


def own_step(make: MakeWorker, wiring: Wiring, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Runs one worker's turns until Spark's batch ends and all blobs are applied or queued; yields nothing.

    Args:
        make: makes the worker.
        wiring: its schema is that of the records in blobs.
        batches: rows of `ROUTED_SCHEMA`.

    Raises:
        StateError: the driver is gone, or the worker's state cannot be used.
    """
    with _joined(wiring) as (link, hello):
        flow = partial(Flow(wiring.flow, wiring.slots).applied, hello.index)
        _work(lambda: make(hello.index, hello.batch, link.say), link, wiring.schema, batches, flow)
    yield from ()


def _work(
    make: Callable[[], Turns], link: Link, schema: pa.Schema, batches: Iterable[pa.RecordBatch], flow: _Flow
) -> None:
    inbox: Inbox[Blob] = Inbox(_BLOB_BYTES_MAX)
    _in_thread("hears-driver", inbox, partial(_listen, link, inbox))
    _in_thread("reads-blobs", inbox, partial(_read_blobs, batches, schema, inbox))
    worker = make()
    try:
        _turn_until_the_end(worker, inbox, flow)
    finally:
        inbox.close()
        worker.close()


def _turn_until_the_end(worker: Turns, inbox: Inbox[Blob], flow: _Flow) -> None:
    """Lets the worker take all that has come between two turns.

    At the end of the input it may still wait for the driver, as for the tick of blobs that it has already.
    """
    window = BatchingWindow()
    more, end, told = False, None, 0
    while True:
        blobs, ended = _come(worker, inbox, 0 if more else None if end is None else _LOOK_S)
        while blobs and not ended and (left := window.wait_s({blob.source for blob in blobs}, time.monotonic())):
            further, ended = _come(worker, inbox, left)
            blobs += further
        if blobs:
            worker.take(blobs)
        more = worker.step()
        if worker.pace.applied > told:
            flow(worker.pace.applied - told, worker.pace.window)
            told = worker.pace.applied
        if ended and not more:
            if worker.spare and not worker.waiting:
                return
            end = time.monotonic() + _END_DEADLINE_S if end is None else end
            if time.monotonic() > end:
                raise StateError(f"The driver did not tell in {_END_DEADLINE_S:.0f} s what to do with the last blobs.")


def _come(worker: Turns, inbox: Inbox[Blob], timeout_s: float | None) -> tuple[list[Blob], bool]:
    """Returns the blobs that have come, and whether they are the last; the worker hears what the driver has said."""
    messages, blobs, ended = inbox.take(timeout_s)
    for message in messages:
        worker.hear(message)
    return blobs, ended


def _listen(link: Link, inbox: Inbox[Blob]) -> None:
    for message in _heard(link):
        inbox.tell(message)


def _read_blobs(batches: Iterable[pa.RecordBatch], schema: pa.Schema, inbox: Inbox[Blob]) -> None:
    for batch in batches:
        for raw in batch.column(1).to_pylist():
            if raw:
                inbox.put(decode(raw, schema, read_us=_now_us()), len(raw))
    inbox.end()
