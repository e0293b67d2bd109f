"""The step S of a real-time query in Spark's tasks: it takes the blobs of one slot, and runs its worker.

The blobs come from the step F, the routers, which run in the JVM (`Router.java`), and not through Spark's shuffle. That
brings how many blobs each router has sent, when Spark's batch ends.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql.types import IntegerType, StructField, StructType

from impls.errors import StateError
from impls.protocol.session import Closed, Failed, Hello
from impls.realtime.blobs import Blob
from impls.realtime.flow import Backoff, BatchingWindow, Flow, Inbox, Pace
from impls.realtime.link import Link
from impls.realtime.port import Receiver
from impls.realtime.worker import RealTimeWorker
from impls.spark.realtime.settings import Wiring
from impls.worker.query import QuerySpec

SENT_SCHEMA = StructType([StructField(name, IntegerType()) for name in ("slot", "router", "blobs")])
DONE_SCHEMA = "nothing int"
_BLOB_BYTES_MAX = 16 << 20  # of blobs that come during a commit
_END_DEADLINE_S = 60.0
_LOOK_S = 0.05

_Flow = Callable[[int, int], None]  # takes records applied since the last call, and how many may be on their way


@contextmanager
def _joined(wiring: Wiring, hello: Hello) -> Iterator[Link]:
    """Connects a worker to the driver, which hears with what it fails, and that nothing of it is open any more."""
    with wiring.connect() as link:
        link.say(hello)
        try:
            yield link
        except Exception as error:
            words = " ".join([str(error), *getattr(error, "__notes__", ())])
            link.say(Failed(hello.role, hello.index, type(error).__name__, words))
            raise
        finally:
            link.say(Closed(hello.index))  # without it the process counts as one that may still write


def _in_thread(name: str, inbox: Inbox[Any], work: Callable[[], None]) -> None:
    """Runs work in a thread; what it fails with is raised where the inbox is emptied."""

    def guarded() -> None:
        try:
            work()
        except Exception as error:
            inbox.fail(error)

    threading.Thread(target=guarded, name=name, daemon=True).start()


def _receive(link: Link) -> Iterator[Any]:
    """Yields what the driver says; raises StateError when it is gone."""
    try:
        while True:
            yield link.hear()
    except EOFError:
        raise StateError("The driver has ended the connection.") from None


class Stepping(Protocol):
    """A worker that commits what comes, step by step; see `impls.realtime.worker.RealTimeWorker`."""

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
        """Does one step and returns whether more is to be done at once."""

    def close(self) -> None:
        """Frees what is open."""


MakeWorker = Callable[[int, int, Callable[[Any], None]], Stepping]
"""Makes the worker of (number, Spark's batch, how to say something to the driver)."""


def worker_maker(spec: QuerySpec) -> MakeWorker:
    """Returns what makes the worker of an S task."""

    def make(worker: int, batch: int, say: Callable[[Any], None]) -> Stepping:
        spec.output.connect()  # else the first results wait for that, for a second
        return RealTimeWorker(spec, worker, batch=batch, say=say)

    return make


def own_step(make: MakeWorker, wiring: Wiring, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Runs one worker until Spark's batch ends and all blobs are applied or queued; yields nothing.

    Args:
        make: makes the worker.
        wiring: its schema is that of the records in blobs.
        batches: rows of `SENT_SCHEMA`, from each router at its end.

    Raises:
        StateError: the driver is gone, or the worker's state cannot be used.
    """
    hello, inbox = wiring.hello(), Inbox[Blob](_BLOB_BYTES_MAX)
    receiver = Receiver(wiring.worker_address(hello.batch, hello.index), wiring.key, wiring.schema, inbox)
    with receiver, closing(inbox), _joined(wiring, hello) as link:
        _in_thread("hears-driver", inbox, partial(_listen, link, inbox))
        _in_thread("awaits-end", inbox, partial(_await_end, batches, receiver, inbox))
        flow = partial(Flow(wiring.flow, wiring.slots).applied, hello.index)
        _work(make(hello.index, hello.batch, link.say), inbox, flow)
    yield from ()


def _work(worker: Stepping, inbox: Inbox[Blob], flow: _Flow) -> None:
    try:
        _step_until_the_end(worker, inbox, flow)
    finally:
        worker.close()


def _step_until_the_end(worker: Stepping, inbox: Inbox[Blob], flow: _Flow) -> None:
    """Lets the worker take all that has come between two commits.

    At the end of the input it may still wait for the driver, as for the epoch of blobs that it has already.
    """
    backoff, window = Backoff(), BatchingWindow()
    more, end, told = False, None, 0
    while True:
        blobs, heard, ended = _come(worker, inbox, 0 if more else None if end is None else _LOOK_S)
        while blobs and not (more or heard or ended) and (left := backoff.left_s(time.monotonic())):
            further, heard, ended = _come(worker, inbox, left)
            blobs += further
        while blobs and not ended and (left := window.wait_s({blob.source for blob in blobs}, time.monotonic())):
            further, _, ended = _come(worker, inbox, left)
            blobs += further
        if blobs:
            worker.take(blobs)
        more = worker.step()
        backoff.begin(time.monotonic())
        if worker.pace.applied > told:
            flow(worker.pace.applied - told, worker.pace.window)
            told = worker.pace.applied
        if ended and not more:
            if worker.spare and not worker.waiting:
                return
            end = time.monotonic() + _END_DEADLINE_S if end is None else end
            if time.monotonic() > end:
                raise StateError(f"The driver did not tell in {_END_DEADLINE_S:.0f} s what to do with the last blobs.")


def _come(worker: Stepping, inbox: Inbox[Blob], timeout_s: float | None) -> tuple[list[Blob], bool, bool]:
    """Returns the blobs that have come, whether the driver has told the worker something, and if no blob follows."""
    messages, blobs, ended = inbox.take(timeout_s)
    for message in messages:
        worker.hear(message)
    return blobs, bool(messages), ended


def _listen(link: Link, inbox: Inbox[Blob]) -> None:
    for message in _receive(link):
        inbox.tell(message)


def _await_end(batches: Iterable[pa.RecordBatch], receiver: Receiver, inbox: Inbox[Blob]) -> None:
    """Ends the inbox when all routers have ended, and every blob has come that they have sent this worker."""
    sent: dict[int, int] = {}
    for batch in batches:
        sent.update(zip(batch.column(1).to_pylist(), batch.column(2).to_pylist(), strict=True))
    receiver.await_blobs(sent)
    inbox.end()
