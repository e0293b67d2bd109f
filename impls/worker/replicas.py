"""Replicas: copies of bins at other workers, kept in an environment of their own beside the worker's state.

A replica is brought up to the end of an epoch from snapshots and changelog, never from another worker's live
environment; or, as a standby, by processing the same records as the bin's owner. A pull from a replica ships only what
has changed since its epoch.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import lmdb
import numpy as np
import pyarrow as pa

from impls.durability.restore import Restored, RestoreRequest, restore
from impls.durability.source import RestoreSource
from impls.errors import CorruptStateError, StateError
from impls.operators.base import Input
from impls.protocol.report import Replication, Report
from impls.store.bins import check_arrived, check_places, copy_bin, drop_bin, verify_bin
from impls.store.checked import get_checked, put_checked
from impls.store.environment import DAMAGE, MAP_BYTES, Meta, Store, read_meta, store_path, wipe, write_meta
from impls.store.lock import take_lock
from impls.store.records import concat
from impls.store.state import BinState
from impls.store.tables import META, OUTBOX, iter_range
from impls.worker.query import Task
from impls.worker.refused import accepted
from impls.worker.versions import PipelineError, Running

_EPOCHS = OUTBOX + b"replica"


def replica_path(state_dir: str | Path, worker: int) -> Path:
    """Returns the folder of the environment with a worker's replicas."""
    return store_path(state_dir, worker).with_suffix(".replicas")


def keep_replicas(task: Task, received: list[pa.Table] | None, report: Report) -> None:
    """Updates the worker's replicas to what the plan asks for after the epoch; done again it changes nothing.

    What the plan names in `replicas` is brought to the end of the epoch before; what it names in `standbys` is brought
    there too and then processes the epoch's records, unless it only follows, see `_follows`. Replicas that the worker
    is not to hold are deleted. `received` are the epoch's records, None where workers commit in no common order.
    """
    plan = task.order.written.plan
    refresh = {bin_ for bin_, at in plan.copies.replicas if at == task.worker}
    standbys = {bin_ for bin_, at in plan.copies.standbys if at == task.worker}
    forgets = any(at == task.worker for _, at in task.order.written.forgotten)
    if task.spec.files is None or not (refresh or standbys or forgets):
        return
    if not (refresh or standbys or _known(task)):
        wipe(replica_path(task.state_dir, task.worker))
        return
    map_bytes, wiped = MAP_BYTES, False
    while True:
        try:
            _keep(task, refresh, standbys, received, report, map_bytes)
        except _FullError as full:
            map_bytes = 2 * full.map_bytes
        except DAMAGE as error:
            if wiped:
                raise _failed(task, error) from error
            wipe(replica_path(task.state_dir, task.worker))  # they are only copies
            wiped = True
        except (PipelineError, lmdb.Error) as error:
            raise _failed(task, error) from error
        else:
            return


def _failed(task: Task, error: Exception) -> StateError:
    """Returns an error that no loop around the worker's own environment takes for one of that environment."""
    return StateError(f"The replicas of worker {task.worker} cannot be kept: {error}")


class _FullError(Exception):
    """The map of the replicas' environment is full."""

    def __init__(self, map_bytes: int):
        super().__init__(f"a map of {map_bytes} bytes is full")
        self.map_bytes = map_bytes


def _keep(  # noqa: PLR0917 - the task, what is to be kept, what of, and how large the map is
    task: Task, refresh: set[int], standbys: set[int], received: list[pa.Table] | None, report: Report, map_bytes: int
) -> None:
    source = task.spec.source()
    assert source is not None, "keep_replicas has checked it"
    with ExitStack() as stack:
        store = _opened(task, map_bytes, stack)
        try:
            with store.begin() as txn:  # commits when its block ends, aborts on an exception
                _forget(txn, task, refresh | standbys)
                done = _bring(source, txn, task, sorted(refresh | standbys))
                follows = received is None or _follows(task)
                standby_records = 0 if follows else _process(txn, task, standbys, received or [])
        except lmdb.MapFullError as error:
            raise _FullError(store.map_bytes) from error
    last = task.epoch
    shown = [[bin_, last if bin_ in standbys else last - 1] for bin_ in sorted(refresh | standbys)]
    report.replication = Replication(shown, done.image_bytes + done.delta_bytes, standby_records)


def _follows(task: Task) -> bool:
    """Returns whether standbys come from the changelog alone, as replicas do, because they cannot repeat their owners.

    Only the owner knows whether it does without a version or a record, as only it knows the order of its commits, and
    which results of another query are repeats. Such a standby counts as one of the epoch's end, as nobody will come
    nearer: its pull takes what has changed from the changelog.
    """
    versions = task.order.written.versions
    return task.spec.on_error == "skip" or task.spec.linked or (versions is not None and versions.guarded > 0)


def _opened(task: Task, map_bytes: int, stack: ExitStack) -> Store:
    """Opens the environment of replicas; one that is damaged, foreign or held by another process is replaced."""
    path = replica_path(task.state_dir, task.worker)
    try:
        store = _entered(task, path, map_bytes, stack)
        with store.reading() as txn:
            meta, is_new = read_meta(txn), not txn.stat()["entries"]
        if is_new or (meta is not None and meta.query == task.spec.query):
            return store
    except (StateError, lmdb.Error):
        pass
    stack.close()
    wipe(path)
    return _entered(task, path, map_bytes, stack)


def _entered(task: Task, path: Path, map_bytes: int, stack: ExitStack) -> Store:
    """Opens the environment under its lock, flushed as the worker's own is: a pull trusts both alike."""
    lock = take_lock(path)
    if lock is None:
        raise StateError(f"The replicas in {path} are held by another process that does not end.")
    stack.callback(lock.close)
    return stack.enter_context(Store.open(path, map_bytes=map_bytes, sync=task.spec.fsync))


def _epoch_of(txn: lmdb.Transaction, bin_: int) -> int:
    raw = get_checked(txn, _EPOCHS + bin_.to_bytes(2, "big"))
    return -1 if raw is None else int.from_bytes(raw, "little")


def _set_epoch(txn: lmdb.Transaction, bin_: int, epoch: int) -> None:
    put_checked(txn, _EPOCHS + bin_.to_bytes(2, "big"), epoch.to_bytes(8, "little"))


def _held(txn: lmdb.Transaction) -> list[int]:
    return [int.from_bytes(name[-2:], "big") for name, _ in iter_range(txn, _EPOCHS, _EPOCHS + b"\xff\xff")]


def _known(task: Task) -> set[int]:
    return {bin_ for bin_, at, _ in task.order.replicas if at == task.worker}


def _forget(txn: lmdb.Transaction, task: Task, wanted: set[int]) -> None:
    for bin_ in set(_held(txn)) - _known(task) - wanted:
        drop_bin(txn, bin_, whole=True)
        txn.delete(_EPOCHS + bin_.to_bytes(2, "big"))


def _bring(source: RestoreSource, txn: lmdb.Transaction, task: Task, bins: list[int]) -> Restored:
    """Brings replicas to the end of the epoch before, from what they show if the changelog still reaches back there."""
    order, target, oldest = task.order, task.epoch - 1, source.usable_from()
    if txn.get(META) is None:
        write_meta(txn, Meta.new(task.spec.query, 0, target, order.generation))
    at = {bin_: _epoch_of(txn, bin_) for bin_ in bins}
    behind = [bin_ for bin_ in bins if at[bin_] < target]
    have = {bin_: at[bin_] for bin_ in behind if at[bin_] >= max(oldest, 0)}
    for bin_ in set(behind) - set(have):
        drop_bin(txn, bin_, whole=True)
    check_places(txn, set(behind) - set(have))
    states = {bin_: order.location_of(bin_) for bin_ in behind}
    done = restore(source, txn, target, RestoreRequest(states, have=have, progress=task.progress))
    for bin_ in behind:
        check_arrived(txn, bin_)
        _set_epoch(txn, bin_, target)
    return done


def _process(txn: lmdb.Transaction, task: Task, standbys: set[int], received: list[pa.Table]) -> int:
    """Applies the epoch's records to bins on standby, throws the results away and returns the number of records."""
    spec, epoch = task.spec, task.epoch
    ready = [bin_ for bin_ in standbys if _epoch_of(txn, bin_) == epoch - 1]
    table = _of_standbys(received, ready)
    if table is not None:
        table = accepted(task, table, Report(task.worker))  # its owner counts what is refused
    state, written, mask = BinState(txn, spec.bins), task.order.written, np.zeros(spec.bins, bool)
    mask[ready] = True
    inputs = [Input(mask, written.watermark, table, written.clock)]
    if written.versions is None:
        spec.operator.run(state, inputs)
    else:
        Running.of_standbys(task, state).run(inputs)
    state.write_sizes()
    for bin_ in ready:
        _set_epoch(txn, bin_, epoch)
    return 0 if table is None else len(table)


def _of_standbys(received: Iterable[pa.Table], bins: Iterable[int]) -> pa.Table | None:
    """Returns the records of bins, in (partition, offset) order, None when there are none."""
    tables = list(received)
    wanted = np.fromiter(bins, np.int32)
    if not tables or not len(wanted):
        return None
    table = pa.concat_tables(tables)
    table = table.filter(pa.array(np.isin(table.column("bin").to_numpy(), wanted)))
    return concat([table]) if len(table) else None


def copy_replicas(
    task: Task, holders: Mapping[int, int], txn: lmdb.Transaction, *, verified: bool = False
) -> tuple[dict[int, int], list[int]]:
    """Copies bins from replicas on this host into a transaction.

    Returns ({bin: epoch that its replica shows}, bins that have no usable replica, of which nothing is in the
    transaction). A replica that is ahead of the epoch before (a standby of an attempt run before) is not usable, nor
    is one that is damaged.

    Args:
        task: the task of the worker that gets them.
        holders: bin -> worker that holds the replica.
        txn: the write transaction that gets the bins.
        verified: every item is compared with its checksum, and the bytes of a bin with its recorded size.

    Raises:
        lmdb.MapFullError: the map of the transaction is full.
    """
    have: dict[int, int] = {}
    source = task.spec.source()
    if source is None or not holders:
        return have, list(holders)
    oldest = max(source.usable_from(), 0)
    by_worker: dict[int, list[int]] = {}
    for bin_, worker in holders.items():
        by_worker.setdefault(worker, []).append(bin_)
    for worker, bins in by_worker.items():
        with suppress(StateError, *DAMAGE), _view(task, worker) as view:  # the checkpoint has the bins as well
            for bin_ in bins:
                if oldest <= (at := _epoch_of(view, bin_)) < task.epoch and _copied(view, txn, bin_, verified):
                    have[bin_] = at
                    task.progress()
    return have, [bin_ for bin_ in holders if bin_ not in have]


@contextmanager
def _view(task: Task, worker: int) -> Iterator[lmdb.Transaction]:
    """Reads the replicas of a worker; raises CorruptStateError when they are missing, damaged or of another query."""
    path = replica_path(task.state_dir, worker)
    with Store.open(path, create=False, sync=task.spec.fsync) as store, store.reading(buffers=False) as view:
        meta = read_meta(view)
        if meta is None or meta.query != task.spec.query:
            raise CorruptStateError(f"The replicas in {path} are of another query.")
        yield view


def _copied(view: lmdb.Transaction, txn: lmdb.Transaction, bin_: int, verified: bool) -> bool:
    """Copies one replica whole, or leaves nothing of it and returns False."""
    try:
        if verified:
            verify_bin(view, bin_)
        copy_bin(view, txn, bin_)
    except DAMAGE:
        drop_bin(txn, bin_)
        return False
    return True
