"""The Flight service that hands out bins and keys of a host's environments: read only, to who has the query's token."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import lmdb
import pyarrow as pa
from pyarrow import flight

from impls.closing import end_all
from impls.errors import CorruptStateError, StateError
from impls.store.bins import read_size, size_record
from impls.store.environment import read_meta, store_path
from impls.store.lookup import TooLargeError, look, looking
from impls.store.moving import moving_packs
from impls.store.pages import Leaves, leaves_of
from impls.store.tables import PACKS, STATE, STATE_TABLES, bin_range
from impls.transfer.counts import Counts, OnlyGet
from impls.transfer.settings import Transfer
from impls.transfer.ticket import (
    LOOKED_BYTES,
    PROOF,
    SCHEMA,
    KeyRequest,
    RefusedError,
    Ticket,
    answer_of,
    batch_of,
    open_request,
    packed,
    proof_of,
)


def check_source(view: lmdb.Transaction, *, query: str, epoch: int) -> None:
    """Raises RefusedError unless an environment is of the query, and at the end of the epoch or of the one before.

    The old owner of a bin does not touch it in the epoch in which it is pulled, so both have the same state of it.
    """
    meta = read_meta(view)
    if meta is None or meta.query != query:
        raise RefusedError("foreign")
    if meta.epoch > epoch:
        raise RefusedError("ahead", f"its state is of epoch {meta.epoch}, not {epoch}: this attempt is outdated")
    if meta.epoch < epoch - 1:
        raise RefusedError("old", f"its state is of epoch {meta.epoch}, not {epoch - 1}")


def _batches_of(
    view: lmdb.Transaction, ticket: Ticket, batch_bytes: int, leaves: Leaves | None = None
) -> Iterator[pa.RecordBatch]:
    """Yields the ticket's bins as `copy_bin` would copy them, each with its size record behind its items.

    Args:
        view: a transaction that reads without buffers: as buffers, small items take twice the time.
        ticket: which bins, in which order.
        batch_bytes: about what a batch has.
        leaves: the pages that `view` shows.
    """
    return packed((item for bin_ in ticket.bins for item in _items(view, bin_, leaves)), batch_bytes)


def _items(view: lmdb.Transaction, bin_: int, leaves: Leaves | None) -> Iterator[tuple[bytes, bytes]]:
    packs, whole = moving_packs(view, bin_, read_size(view, bin_)[0], leaves)
    for table in STATE_TABLES:
        if table == PACKS:
            yield from packs
        elif table != STATE or not whole:
            yield from _stored(view, *bin_range(table, bin_))
    yield size_record(view, bin_)


def _stored(view: lmdb.Transaction, low: bytes, high: bytes) -> Iterator[tuple[bytes, bytes]]:
    cursor = view.cursor()
    items: Iterator[Any] = cursor.iternext() if cursor.set_range(low) else iter(())
    for item in items:
        if item[0] >= high:
            break
        yield item


_LOOKING = 2  # looks at keys at once
_TURN_S, _LOOK_S = 1.0, 1.5  # how long one waits, and how long one takes: less than whoever looks waits for both
_IDLE_S = 60.0  # a stream of which nobody has taken a message for so long is given up


class _Stream:
    """An environment that is being read for a puller, until `close`, which any thread may call, at most once."""

    def __init__(self, path: Path):
        self._lock, self._stack = threading.Lock(), ExitStack()
        self.open = True
        self.used = time.monotonic()
        try:
            self.view = self._stack.enter_context(looking(path))
            self.leaves = self._stack.enter_context(leaves_of(path, self.view))
        except BaseException:
            self.close()
            raise

    def step(self, batches: Iterator[pa.RecordBatch]) -> pa.RecordBatch | None:
        """Returns the next batch, None behind the last; raises RefusedError when the stream was closed."""
        with self._lock:
            if not self.open:
                raise RefusedError("damaged", "the puller took too long")
            self.used = time.monotonic()
            return next(batches, None)

    def close(self) -> bool:
        """Ends the reading, which frees the pages that it keeps; returns whether it was open."""
        with self._lock:
            was, self.open = self.open, False
            end_all((self._stack.close,), "environment that is read")  # whoever waits for its turn gets it all the same
        return was


class BinServer(flight.FlightServerBase):  # type: ignore[misc]
    """Serves the environments in a host's state folder from its start until `shutdown`.

    Attributes:
        counts: what it has done.
        exhausted: set when there was no memory for what was asked for.
    """

    def __init__(self, transfer: Transfer, *, query: str, generation: int, host: str, state_dir: str | Path):
        self.counts, self.exhausted = Counts(), threading.Event()
        self._transfer, self._query, self._generation = transfer, query, generation
        self._host, self._state_dir = host, Path(state_dir)
        self._turns = threading.BoundedSemaphore(transfer.streams)
        self._looking = threading.BoundedSemaphore(_LOOKING)  # so that pulls wait for nobody who looks at keys
        self._streams: set[_Stream] = set()
        how: dict[str, Any] = {"middleware": {"only-get": OnlyGet(self.counts)}}
        if transfer.certificate:
            how |= {
                "tls_certificates": [(transfer.certificate, transfer.key)],
                "verify_client": True,
                "root_certificates": transfer.certificate,
            }
        super().__init__(f"{transfer.scheme}://{_bracketed(host)}:0", **how)

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"{self._transfer.scheme}://{_bracketed(self._host)}:{self.port}"

    def do_get(self, context: flight.ServerCallContext, ticket: flight.Ticket) -> flight.GeneratorStream:
        """Streams what a sealed request asks for."""
        try:
            asked = self._admitted(ticket.ticket)
            if isinstance(asked, KeyRequest):
                return self._answer(ticket.ticket, iter(self._looked(asked, context.is_cancelled)))
            self._await_turn(self._turns, self._transfer.busy_s)
            try:
                served = self._served(self._opened(asked), asked)
            except BaseException:
                self._turns.release()
                raise
        except RefusedError as error:
            self.counts.refuse(error.reason)
            raise _as_flight_error(error) from error
        except MemoryError:
            self.exhausted.set()
            raise
        next(served)  # a generator that was never entered would not end what it has to end
        return self._answer(ticket.ticket, served)

    def _answer(self, sealed: bytes, batches: Iterator[pa.RecordBatch]) -> flight.GeneratorStream:
        proof = proof_of(sealed, self._transfer.token)
        return flight.GeneratorStream(SCHEMA.with_metadata({PROOF: proof}), batches)

    def _admitted(self, sealed: bytes) -> Ticket | KeyRequest:
        asked = open_request(sealed, self._transfer.token)
        if (asked.query, asked.generation, asked.host) != (self._query, self._generation, self._host):
            raise RefusedError("other")
        return asked

    def _await_turn(self, turns: threading.BoundedSemaphore, busy_s: float) -> None:
        if not turns.acquire(timeout=busy_s):
            raise RefusedError("busy")

    def _looked(self, asked: KeyRequest, is_given_up: Callable[[], bool]) -> list[pa.RecordBatch]:
        """Returns what a worker's environment has of keys, packed: objects of Python take ten times the memory."""
        self._await_turn(self._looking, _TURN_S)
        pace = _paced(time.monotonic() + _LOOK_S, is_given_up)
        try:
            with looking(store_path(self._state_dir, asked.worker)) as txn:
                items = answer_of(look(txn, asked.query, asked.values, asked.keys, most=LOOKED_BYTES, pace=pace))
            batches = list(packed(items, self._transfer.batch_bytes))
        except TooLargeError as error:
            raise RefusedError("large") from error
        except (CorruptStateError, lmdb.Error, OSError) as error:
            raise RefusedError("damaged", str(error).rstrip(".")) from error
        except StateError as error:
            raise RefusedError("foreign", str(error).rstrip(".")) from error
        finally:
            self._looking.release()
        self.counts.add(looks=1)
        return batches

    def _opened(self, asked: Ticket) -> _Stream:
        try:
            stream = _Stream(store_path(self._state_dir, asked.worker))
        except CorruptStateError as error:
            raise RefusedError("absent") from error
        except (StateError, lmdb.Error, OSError) as error:  # such as a want of descriptors
            raise RefusedError("damaged", f"its state cannot be opened: {error}") from error
        try:
            check_source(stream.view, query=asked.query, epoch=asked.epoch)
        except (StateError, lmdb.Error) as error:
            stream.close()
            raise RefusedError("damaged") from error
        except BaseException:
            stream.close()
            raise
        self._streams.add(stream)
        self.counts.streams(len(self._streams))
        return stream

    def _served(self, stream: _Stream, asked: Ticket) -> Iterator[pa.RecordBatch]:
        """Yields nothing of use once, then the batches."""
        whole = False
        try:
            yield batch_of([], [])
            batches = _batches_of(stream.view, asked, self._transfer.batch_bytes, stream.leaves)
            while (batch := stream.step(batches)) is not None:
                self.counts.add(bytes=batch.nbytes)
                yield batch
            whole = True
        except RefusedError as error:
            raise _as_flight_error(error) from error
        except (CorruptStateError, lmdb.Error) as error:
            raise _as_flight_error(RefusedError("damaged", f"its state is damaged: {error}")) from error
        finally:
            self.counts.add(**{"served" if whole else "failed": 1})
            self._end(stream)

    def _end(self, stream: _Stream) -> None:
        self._streams.discard(stream)
        if stream.close():
            self._turns.release()

    def give_up_idle(self, idle_s: float = _IDLE_S) -> int:
        """Ends the reading of environments whose pullers have taken nothing for so long, and returns how many."""
        idle = [stream for stream in list(self._streams) if time.monotonic() - stream.used > idle_s]
        for stream in idle:
            self._end(stream)
        return len(idle)


def _paced(until: float, is_given_up: Callable[[], bool]) -> Callable[[], None]:
    """Returns what a look does now and then: it lets pulls go on, and ends when nobody waits, or has waited enough."""

    def pace() -> None:
        time.sleep(0)  # else they wait 5 ms for the interpreter, again and again
        if is_given_up():
            raise RefusedError("busy", "nobody waits for the answer any more")
        if time.monotonic() > until:
            raise RefusedError("large", "the state that is asked for takes too long to find")

    return pace


def _as_flight_error(error: RefusedError) -> flight.FlightUnauthorizedError:
    return flight.FlightUnauthorizedError(str(error), error.reason.encode())


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
