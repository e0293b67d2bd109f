"""The F step: takes records from Spark, packs those of each worker into blobs, and changes its routing when told."""

import threading
import time
from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql.types import BinaryType, IntegerType, StructField, StructType

from impls.errors import StateError
from impls.protocol.realtime import Failed, Route
from impls.realtime.flow import Flow, Inbox
from impls.realtime.link import Link
from impls.realtime.router import Router
from impls.spark.realtime.wiring import Wiring

ROUTED_SCHEMA = StructType([StructField("slot", IntegerType()), StructField("blob", BinaryType())])
_ARROW = pa.schema([("slot", pa.int32()), ("blob", pa.binary())])
_WAITING_BYTES_MAX = 4 << 20  # of records that come while blobs are on their way
_ROUTING_DEADLINE_S = 60.0
_FULL_S = 0.002  # between two looks whether a worker has room again

_Records = tuple[pa.RecordBatch, int]  # with the time at which they came, µs


def route_step(wiring: Wiring, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Routes the records of one partition of the source until Spark's batch ends.

    Yields a row for each worker that has records, and an empty row behind it: Arrow's writer sends a row when the one
    behind it has come.

    Args:
        wiring: its schema's first column is the bin; rows without a bin are left out.
        batches: records from Spark; further columns are left out.

    Raises:
        StateError: the driver is gone, sends no routing in a minute, or one that does not fit.
    """
    hello = wiring.hello("router")
    with wiring.connect() as link:
        link.say(hello)
        try:
            router, flow = Router(hello.index, wiring.slots), Flow(wiring.flow, wiring.slots)
            yield from _routed(link, router, wiring.schema, batches, flow)
        except Exception as error:
            link.say(Failed(hello.role, hello.index, type(error).__name__, str(error)))
            raise


def _routed(
    link: Link, router: Router, schema: pa.Schema, batches: Iterable[pa.RecordBatch], flow: Flow
) -> Iterator[pa.RecordBatch]:
    inbox: Inbox[_Records] = Inbox(_WAITING_BYTES_MAX)
    switched = threading.Event()
    threading.Thread(target=_hear, args=(link, router, inbox, switched), name="hears-driver", daemon=True).start()
    threading.Thread(target=_read, args=(batches, schema, inbox), name="reads-records", daemon=True).start()
    if not switched.wait(_ROUTING_DEADLINE_S):
        raise StateError(f"The driver sent no routing in {_ROUTING_DEADLINE_S:.0f} s.")
    ended = False
    try:
        while not ended:
            _, come, ended = inbox.take()
            for part, came_us in _admitted(router, flow, inbox, come):
                blobs = router.pack([part], came_us=came_us, packed_us=_now_us())
                flow.sent(router.source, router.packed())
                yield _rows(blobs)
    finally:
        inbox.close()


def _admitted(router: Router, flow: Flow, inbox: Inbox[_Records], come: list[_Records]) -> Iterator[_Records]:
    """Yields what has come, in parts for which the workers have room, each when they have."""
    rows = sum(len(batch) for batch, _ in come)
    if not rows:
        return
    came_us = sum(len(batch) * at for batch, at in come) // rows
    left = come[0][0] if len(come) == 1 else pa.concat_batches([batch for batch, _ in come])
    while rows := len(left):
        room = flow.room()
        number = rows if rows <= int(room.min()) else router.admitted(left, room)
        if number:
            yield left if number == rows else left.slice(0, number), came_us
            left = left.slice(number)
        else:
            inbox.rest(_FULL_S)


def _rows(blobs: list[tuple[int, bytes]]) -> pa.RecordBatch:
    slots = [slot for slot, _ in blobs for _ in range(2)]
    values = [value for _, blob in blobs for value in (blob, b"")]
    return pa.RecordBatch.from_arrays([pa.array(slots, pa.int32()), pa.array(values, pa.binary())], schema=_ARROW)


def _read(batches: Iterable[pa.RecordBatch], schema: pa.Schema, inbox: Inbox[_Records]) -> None:
    try:
        for batch in batches:
            if len(records := _records(batch, schema)):
                inbox.put((records, _now_us()), records.nbytes)
        inbox.end()
    except Exception as error:
        inbox.fail(error)


def _records(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Returns the rows that have a bin, in the columns of the schema."""
    records = pa.RecordBatch.from_arrays(batch.columns[: len(schema)], schema=schema)
    bins = records.column(0)
    return records.filter(bins.is_valid()) if bins.null_count else records


def _hear(link: Link, router: Router, inbox: Inbox[_Records], switched: threading.Event) -> None:
    """Switches at once when told, also while the main thread waits for records or for Spark to take a blob."""
    try:
        while True:
            message = link.hear()
            if isinstance(message, Route):
                link.say(router.switch(message))
                switched.set()
    except EOFError:
        inbox.fail(StateError("The driver has ended the connection."))
    except Exception as error:
        inbox.fail(error)
    finally:
        switched.set()


def _now_us() -> int:
    return time.time_ns() // 1000
