"""What must hold after every epoch, whatever happened in it."""

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
from memory import RESULTS

from chaos.damage import Damage, log_epochs
from chaos.parameters import Parameters
from chaos.recipes import Broken
from chaos.versions import check_shapes, check_versions
from chaos.violation import Violation, require
from chaos.workload import Batch, Workload
from impls.durability import frame as frames
from impls.durability import schedule
from impls.durability import snapshot as snapshots
from impls.durability.restore import RestoreRequest, restore
from impls.durability.schedule import read_manifest
from impls.durability.source import RestoreSource
from impls.errors import CorruptStateError, StateError
from impls.protocol.controller import Controller
from impls.protocol.plan import WrittenPlan
from impls.protocol.report import Report
from impls.store.bins import open_size, verify_items
from impls.store.checked import open_record
from impls.store.entries import BLOCK_BYTES, SLOTS
from impls.store.environment import Store, read_meta, store_path
from impls.store.packs import unpacked
from impls.store.records import from_bytes
from impls.store.tables import DENSE, OUTBOX, PACKS, QUEUE, SHAPE, SIZE, STATE, STATE_TABLES, iter_range
from impls.worker.replicas import replica_path
from impls.worker.results import Deduplicator, Number

_DISK_BYTES = 64 << 20
_TABLES = (STATE, QUEUE, SIZE, DENSE, SHAPE)
REPLICA_EPOCHS = OUTBOX + b"replica"
Items = dict[bytes, bytes]


class Attempts:
    """Any two attempts of an epoch write equal frames and equal images."""

    def __init__(self) -> None:
        self._frames: dict[str, bytes] = {}
        self._images: dict[tuple[str, int], snapshots.BinImage] = {}
        self.digest = hashlib.sha256()

    def wrote(self, name: str, data: bytes) -> None:
        """Takes in a file that was written; what an attempt reports of itself may be another than the one before it."""
        if name.startswith(frames.FOLDER):
            data = replace(frames.Frame.decode(data, name), report=b"").encode()
        self.digest.update(name.encode() + data)
        if name.startswith(frames.FOLDER):
            before = self._frames.setdefault(name, data)
            require(before == data, "attempts", f"two attempts wrote different frames {name}")
        elif name.startswith(snapshots.FOLDER):
            for bin_, image in snapshots.decode(data, name)[1].items():
                before_image = self._images.setdefault((name, bin_), image)
                require(
                    before_image == image, "attempts", f"two attempts wrote different images of bin {bin_} in {name}"
                )


class Results:
    """Every key's one result of an epoch in which records of it were applied, in order, after repeats are dropped."""

    def __init__(self, topic: str):
        self._topic, self._read = topic, 0
        self._seen = Deduplicator()
        self._sent: dict[tuple[int, int, int], tuple[bytes, bytes]] = {}
        self.digest = hashlib.sha256()

    def check(self, epoch: int, expected: dict[int, bytes], bin_of: list[int], routing: Any) -> None:
        """Compares what was sent since the last call with what an epoch must have sent."""
        found: dict[int, bytes] = {}
        rows, self._read = RESULTS[self._topic][self._read :], len(RESULTS[self._topic])
        for worker, number, index, name, payload in rows:
            self.digest.update(b"%d %d %d %s %s" % (worker, number, index, name, payload))
            before = self._sent.setdefault((worker, number, index), (name, payload))
            require(
                before == (name, payload), "attempts", f"result {index} of worker {worker} in epoch {number} differs"
            )
            if not self._seen.accept(0, Number(0, worker, 0, number, index)):
                continue
            key = int.from_bytes(name, "big")
            require(number == epoch, "results", f"a result of epoch {number} for key {key} comes after epoch {epoch}")
            require(key not in found, "results", f"key {key} has two results in epoch {epoch}")
            require(worker == routing[bin_of[key]], "results", f"worker {worker} sends for key {key}, which is not its")
            found[key] = payload
        for key in sorted(expected.keys() | found.keys()):
            ours, theirs = expected.get(key), found.get(key)
            require(ours == theirs, "results", f"key {key} has the result {_shown(theirs)}, not {_shown(ours)}")


def _shown(payload: bytes | None) -> str:
    if payload is None:
        return "none"
    return str(int.from_bytes(payload, "little")) if len(payload) == 8 else repr(payload)


class Oracle:
    """check() after every epoch that was committed."""

    def __init__(
        self, parameters: Parameters, workload: Workload, topic: str, home: Callable[[int], Path], damage: Damage,
        scratch: Store,
    ):  # fmt: skip
        self._p, self._workload, self._home, self._damage = parameters, workload, home, damage
        self._scratch = scratch
        self.results = Results(topic)

    def check(
        self,
        controller: Controller,
        written: WrittenPlan,
        batch: Batch,
        source: RestoreSource | None,
        reports: list[Report],
    ) -> None:
        """Applies the epoch's records to the truth and compares everything with it."""
        plan, location = written.plan, controller.location
        blocked = set(np.flatnonzero(plan.routing != location).tolist()) | set(plan.hold)
        try:
            expected = self._workload.apply(batch, blocked, written)
        except Broken as error:
            raise Violation("refused", f"what fails without the version that is guarded was done: {error}") from error
        refused = sum(report.refused for report in reports)
        wanted = self._workload.set_aside
        require(refused == wanted, "refused", f"workers have set {refused} records aside, not {wanted}")
        check_versions(self._workload, controller.changing, written.versions, reports)
        self.results.check(batch.epoch, expected, self._workload.bin_of, plan.routing)
        queued = {bin_: len(queue) for bin_, queue in self._workload.queues.items() if queue}
        seen = {bin_: int(controller.queued[bin_]) for bin_ in np.flatnonzero(controller.queued).tolist()}
        require(queued == seen, "queues", f"the controller knows of the queues {seen}, not {queued}")
        for worker in range(written.workers):
            self._environment(worker, controller, written)
            self._replicas(worker)
        if batch.epoch % 5 == 4:
            self.files(controller, written, source)

    def _environment(self, worker: int, controller: Controller, written: WrittenPlan) -> None:
        """A worker's environment holds the bins at their place, and copies only of bins that are to be dropped."""
        try:
            items = self._read(worker, written.epoch)
        except CorruptStateError as error:
            hurt = worker in self._damage.hurt or self._damage.flipped
            require(hurt, "environment", f"nothing was done to worker {worker}, but: {error}")
            return
        self._damage.hurt.discard(worker)
        states, queues = self._decode(items)
        self._compare(worker, states, queues, controller.location, written.plan.routing)
        check_shapes(self._workload.shape, worker, items, controller.location)
        strange = {bin_ for bin_ in states if controller.location[bin_] != worker}
        waiting = {drop.bin for drop in controller._drops if drop.worker == worker}
        require(strange <= waiting, "one owner", f"worker {worker} holds bins {sorted(strange - waiting)} of others")

    def _replicas(self, worker: int) -> None:
        """A worker's replicas show the epochs that they say they show."""
        path = replica_path(self._home(worker), worker)
        try:
            with Store.open(path, create=False) as store, store.reading() as txn:
                found = iter_range(txn, REPLICA_EPOCHS, REPLICA_EPOCHS + b"\xff")
                marks = {bytes(k)[-2:]: bytes(v)[4:] for k, v in found}
                states, _ = self._decode(_verified(txn))
        except CorruptStateError as error:
            require(self._damage.flipped or not path.exists(), "replica", f"nothing was done to replicas, but: {error}")
            return
        for name, mark in marks.items():
            bin_, epoch = int.from_bytes(name, "big"), int.from_bytes(mark, "little")
            ours, theirs = self._workload.truth_at(bin_, epoch), states.get(bin_, {})
            what = f"worker {worker}'s replica of bin {bin_} at epoch {epoch} is {theirs}, not {ours}"
            require(ours == theirs or self._damage.flipped, "replica", what)

    def _read(self, worker: int, epoch: int) -> Items:
        path = store_path(self._home(worker), worker)
        with Store.open(path, create=False) as store, store.reading() as txn:
            meta = read_meta(txn)
            if meta is None or meta.epoch != epoch:
                raise CorruptStateError(f"it is of epoch {meta.epoch if meta else None}, not {epoch}")
            return _verified(txn)

    def _decode(self, items: Items) -> tuple[dict[int, dict[int, Any]], dict[int, list[Any]]]:
        states: dict[int, dict[int, Any]] = defaultdict(dict)
        queues: dict[int, list[Any]] = defaultdict(list)
        for name, value in items.items():
            bin_ = int.from_bytes(name[1:3], "big")
            if name[:1] == STATE:
                key, raw = int.from_bytes(name[3:], "big"), value[:-4]
                states[bin_][key] = tuple(json.loads(raw)) if self._workload.chained else int.from_bytes(raw, "little")
            elif name[:1] == DENSE:
                states[bin_] |= self._dense(bin_, int.from_bytes(name[3:], "big"), value)
            elif name[:1] == QUEUE:
                queues[bin_] += _records(value[8:], self._workload.chained)
        return states, queues

    def _dense(self, bin_: int, block: int, value: bytes) -> dict[int, int]:
        assert len(value) == BLOCK_BYTES
        per_bin = -(-self._p.keys // self._p.bins)
        first = bin_ * per_bin + block * SLOTS
        last = min((bin_ + 1) * per_bin, self._p.keys)
        return dict(zip(range(first, last), np.frombuffer(value, "<u8", SLOTS).tolist(), strict=False))

    def _compare(
        self, worker: int, states: dict[int, Any], queues: dict[int, list[Any]], location: Any, routing: Any
    ) -> None:
        for bin_ in np.flatnonzero(location == worker).tolist():
            ours, theirs = self._workload.truth.get(bin_, {}), states.get(bin_, {})
            if ours != theirs:
                key = next(k for k in sorted(ours.keys() | theirs.keys()) if ours.get(k) != theirs.get(k))
                what = f"key {key} of bin {bin_} has {theirs.get(key)} at worker {worker}, not {ours.get(key)}"
                raise Violation("state", what)
        for bin_ in range(self._p.bins):
            ours_queued = [r if self._workload.chained else r[:3] for r in self._workload.queues.get(bin_, [])]
            ours_queued = ours_queued if routing[bin_] == worker else []
            found = sorted(queues.get(bin_, []))
            what = f"the queue of bin {bin_} at worker {worker} is {found}, not {sorted(ours_queued)}"
            require(found == sorted(ours_queued), "state", what)

    # -- the checkpoint -----------------------------------------------------------------------------------------------

    def files(self, controller: Controller, written: WrittenPlan, source: RestoreSource | None) -> None:
        """Bins restored from the checkpoint alone are as at their owners, and no file is kept for nothing."""
        if source is None:
            return
        for worker in range(written.workers):
            self._restored(worker, controller, written, source)
        epoch, files = written.epoch, source.files
        base = int(read_manifest(files, source.query, source.bins).base.min())
        replayed = self._p.replay_epochs + int(controller.size.sum()) // schedule._SHARE_BYTES  # of large state, more
        require(base >= epoch - replayed, "replay", f"after epoch {epoch} recovery begins with {base + 1}")
        kept = sum(size for folder in (frames.FOLDER, snapshots.FOLDER) for _, size in files.names(folder))
        most = 3 * int(controller.size.sum()) + _DISK_BYTES
        require(kept <= most, "disk", f"the checkpoint takes {kept} bytes, {most} are allowed")
        oldest = [number for number in log_epochs(files) if number <= base - self._p.replay_epochs]
        require(len(oldest) <= self._p.replay_epochs, "disk", f"frames of epochs {sorted(oldest)} are still there")

    def _restored(self, worker: int, controller: Controller, written: WrittenPlan, source: RestoreSource) -> None:
        here = np.flatnonzero(controller.location == worker).tolist()
        queues = tuple(np.flatnonzero((written.plan.routing == worker) & (controller.queued > 0)).tolist())
        txn = self._scratch.env.begin(write=True, buffers=True)
        try:
            restore(source, txn, written.epoch, RestoreRequest(dict.fromkeys(here, worker), queues, worker))
            items = opened((bytes(k), bytes(v)) for k, v in txn.cursor().iternext())
        except (StateError, lmdb.Error, KeyError, AssertionError) as error:
            raise Violation("restore", f"worker {worker} cannot be restored: {error!r}") from error
        finally:
            txn.abort()
        states, queued = self._decode(items)
        try:
            self._compare(worker, states, queued, controller.location, written.plan.routing)
            check_shapes(self._workload.shape, worker, items, controller.location)
        except Violation as error:
            raise Violation("restore", f"restored from the checkpoint, {error}") from error


def opened(items: Iterable[tuple[bytes, bytes]]) -> Items:
    """Returns items with the entries of packs in their place; raises CorruptStateError when a pack is damaged."""
    found: Items = {}
    for name, value in items:
        found |= unpacked(name, value) if name[:1] == PACKS else [(name, value)]
    return found


def sound_items(txn: lmdb.Transaction) -> Items:
    """Returns all items, with the entries of packs; raises CorruptStateError when any is damaged or out of order."""
    items = [(bytes(name), bytes(value)) for name, value in txn.cursor().iternext()]
    names = [name for name, _ in items]
    if any(above <= below for below, above in pairwise(names)):
        raise CorruptStateError("the items are out of order")
    found = dict(sorted(opened(items).items()))
    state = [item for item in found.items() if item[0][:1] in STATE_TABLES]
    verify_items([name for name, _ in state], [value for _, value in state])
    for name, value in found.items():
        if name[:1] not in STATE_TABLES:
            open_record(name, value)
    _check_sizes(found)
    return found


def _check_sizes(items: Items) -> None:
    """Raises CorruptStateError when a bin has not as many items and bytes as are recorded: it could not move."""
    sizes: dict[int, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for name, value in items.items():
        if name[:1] in STATE_TABLES:
            bin_ = int.from_bytes(name[1:3], "big")
            sizes[bin_] = sizes[bin_][0] + 1, sizes[bin_][1] + len(value)
    for name, value in items.items():
        if name[:1] == SIZE and (size := open_size(name, value))[1] != sizes[size[0]]:
            raise CorruptStateError(f"Bin {size[0]} holds {sizes[size[0]]} where {size[1]} are recorded.")


def _verified(txn: lmdb.Transaction) -> Items:
    """Returns the items of state and queues; raises CorruptStateError when any item of any table is damaged."""
    return {name: value for name, value in sound_items(txn).items() if name[:1] in _TABLES}


def _records(raw: bytes, chained: bool) -> list[Any]:
    table = from_bytes(raw)
    columns = ["partition", "offset", "key", *(["value"] if chained else [])]
    rows = zip(*(table.column(name).to_pylist() for name in columns), strict=True)
    return [(p, o, int.from_bytes(k, "big") if chained else k, *rest) for p, o, k, *rest in rows]
