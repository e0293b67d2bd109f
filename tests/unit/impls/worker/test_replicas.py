"""Replicas: whose map is full, what a damaged one may leave behind, and what must outlive the failure of a host."""

from dataclasses import replace
from pathlib import Path

import lmdb
import numpy as np
import pyarrow as pa
import pytest
from durable import BINS, Workers

import impls.store.environment
import impls.worker.replicas
from impls.durability.files import Files
from impls.errors import CorruptStateError, OperatorError, StateError
from impls.operators import DenseCount, HashCount
from impls.protocol.order import EpochOrder
from impls.protocol.plan import EpochPlan, Pull, WrittenPlan
from impls.protocol.replicas import Copies
from impls.protocol.report import Report
from impls.protocol.session import Ended, Marks, NewEpoch
from impls.realtime.blobs import Blob
from impls.realtime.worker import RealTimeWorker
from impls.store.bins import read_size, stored_items, verify_bin
from impls.store.entries import stored_value
from impls.store.environment import Store, store_path
from impls.store.hashing import bin_of_hash, hash_int64
from impls.store.tables import STATE, bin_key
from impls.worker.query import QuerySpec, Task
from impls.worker.replicas import keep_replicas, replica_path
from impls.worker.sinks import Nowhere

SMALL = 64 << 10


@pytest.fixture
def small_map(monkeypatch):
    """Maps of replicas begin so small that the state of these tests is larger."""
    monkeypatch.setattr(impls.worker.replicas, "MAP_BYTES", SMALL)


def contents(path, bins):
    """Items and size of bins in an environment."""
    with Store.open(path, create=False) as store, store.reading(buffers=False) as txn:
        return {bin_: (stored_items(txn, bin_), read_size(txn, bin_)) for bin_ in bins}


def others_of(workers, worker):
    return [bin_ for bin_ in range(BINS) if workers.location[bin_] != worker]


def replicated(tmp_path, **more):
    """Workers after a few epochs, and worker 0 with a replica of every bin of the others as of the epoch before."""
    workers = Workers(tmp_path, **more)
    workers.epochs(3)
    workers.epoch(refresh=[(bin_, 0) for bin_ in others_of(workers, 0)])
    return workers


def test_a_full_map_of_replicas_grows_and_the_worker_ends_its_epoch_once(tmp_path, small_map):
    workers = Workers(tmp_path, keys=5000)
    workers.epoch(records=10_000)
    before = {w: contents(workers.environment(w), others_of(workers, 0)) for w in (1, 2)}
    reports = workers.epoch(records=1, refresh=[(bin_, 0) for bin_ in others_of(workers, 0)])
    assert [report.repeated for report in reports] == [False] * 3
    held = contents(replica_path(workers.spec.state_dir, 0), others_of(workers, 0))
    assert held == {bin_: before[int(workers.location[bin_])][bin_] for bin_ in held}
    assert (replica_path(workers.spec.state_dir, 0) / "data.mdb").stat().st_size > SMALL
    workers.check()


def test_damage_that_comes_back_in_replicas_is_an_error_of_theirs_and_no_state_is_rebuilt(tmp_path, monkeypatch):
    workers = Workers(tmp_path)
    workers.epochs(2)
    before = (workers.environment(0) / "data.mdb").stat().st_ino

    def damaged(*_args, **_more):
        raise CorruptStateError("An entry is damaged.")

    monkeypatch.setattr(impls.worker.replicas, "restore", damaged)
    with pytest.raises(StateError, match="The replicas of worker 0 cannot be kept: An entry is damaged") as found:
        workers.epoch(refresh=[(BINS - 1, 0)])
    assert type(found.value) is StateError
    assert (workers.environment(0) / "data.mdb").stat().st_ino == before


def test_a_standby_names_the_record_that_it_cannot_apply_as_the_owner_does(tmp_path):
    workers = replicated(tmp_path)
    workers.number += 1
    bin_, order = others_of(workers, 0)[0], workers.order()
    written = replace(order.written, plan=replace(order.written.plan, copies=Copies(standbys=((bin_, 0),))))
    one = {"bin": [bin_], "partition": [0], "offset": [9], "time": [0], "key": pa.array([None], pa.int64())}
    with pytest.raises(OperatorError, match="The record at input partition 0, offset 9 has no key"):
        keep_replicas(Task(workers.spec, replace(order, written=written), 0), [pa.table(one)], Report(0))


class Turning:
    """Two workers in real time whose bins 0 and 1 are at worker 0, and 2 and 3 at worker 1."""

    def __init__(self, folder):
        files = Files(str(folder / "checkpoint"))
        files.make_folders(["log", "snapshots"])
        self.spec = QuerySpec("q", 4, HashCount(), Nowhere(), str(folder / "state"), files, repeats=True)
        self.said, self.routing = ([], []), np.array([0, 0, 1, 1], np.int32)
        self._offset = self._blobs = 0
        self.workers = [RealTimeWorker(self.spec, w, batch=0, say=self.said[w].append) for w in (0, 1)]

    def records(self, number, keys):
        """Sends records of keys 0 to `keys` - 1 in an epoch."""
        bins, at = bin_of_hash(hash_int64(np.arange(keys)), 4), np.arange(keys) + self._offset
        self._offset, self._blobs = self._offset + keys, self._blobs + 1
        for w, worker in enumerate(self.workers):
            mine = np.flatnonzero(self.routing[bins] == w)
            columns = {"bin": bins[mine], "partition": mine * 0, "offset": at[mine], "time": mine, "key": mine}
            kinds = {"bin": pa.int32(), "partition": pa.int32()}
            table = {name: pa.array(column).cast(kinds.get(name, pa.int64())) for name, column in columns.items()}
            worker.take([Blob(0, self._blobs, number, pa.table(table))])

    def epoch(self, number, steps=50, **plan):
        plan = EpochPlan(self.routing.copy(), **plan)
        elsewhere = tuple((pull.bin, pull.source) for pull in plan.pulls)
        order = EpochOrder(WrittenPlan(number, 1, 2, plan), first=number == 0, elsewhere=elsewhere)
        for worker in self.workers:
            worker.hear(NewEpoch(order))
            worker.hear(Marks(number, (), settled=True))
            assert not all(worker.step() for _ in range(steps)), "it goes round in circles"

    def ended(self):
        return [[m.epoch for m in said if isinstance(m, Ended)] for said in self.said]

    def close(self):
        for worker in self.workers:
            worker.close()


@pytest.fixture
def turning(tmp_path):
    found = Turning(tmp_path)
    yield found
    found.close()


def test_a_full_map_of_replicas_grows_in_real_time_and_the_epoch_ends_once(turning, small_map):
    turning.records(0, 8000)
    turning.epoch(0)
    turning.epoch(1)
    turning.epoch(2, copies=Copies(((2, 0), (3, 0))))
    turning.epoch(3)
    turning.close()
    assert turning.ended() == [[0, 1, 2, 3]] * 2
    path = replica_path(turning.spec.state_dir, 0)
    assert (path / "data.mdb").stat().st_size > SMALL
    assert all(size[0] > 1000 for _, size in contents(path, (2, 3)).values())


def test_a_damaged_replica_is_not_read_again_in_the_epoch_that_has_found_the_damage(turning):
    turning.records(0, 400)
    turning.epoch(0)
    turning.epoch(1, copies=Copies(((3, 0),)))
    with Store.open(replica_path(turning.spec.state_dir, 0)) as store, store.begin() as txn:
        name, value = stored_items(txn, 3)[9]  # whoever copies looks at both ends
        txn.put(name, bytes([value[0] ^ 1]) + bytes(value[1:]))
    turning.routing[3] = 0
    turning.records(2, 400)
    turning.epoch(2, pulls=(Pull(3, 1, 0),), from_replica=True)
    turning.close()
    ended = [m for m in turning.said[0] if isinstance(m, Ended)]
    report = Report.from_json(ended[-1].report)
    assert (report.recovered[:7], report.moves.bins, report.moves.restored) == ("damaged", [3], 1)
    (items, (entries, _)) = contents(store_path(turning.spec.state_dir, 0), [3])[3]
    counts = [int.from_bytes(value[:8], "little") for name, value in items if name[:1] == STATE]
    assert (len(counts), set(counts)) == (entries - 1, {2})  # one item is the next offset


@pytest.mark.parametrize("fsync", [False, True])
def test_every_environment_is_flushed_as_the_durability_says(tmp_path, fsync, monkeypatch):
    opened, real = {}, lmdb.open

    def noted(path, **options):
        opened.setdefault(Path(path).name, set()).add((options["sync"], options["metasync"]))
        return real(path, **options)

    monkeypatch.setattr(impls.store.environment.lmdb, "open", noted)
    workers = replicated(tmp_path, keys=100, fsync=fsync)
    workers.epoch([Pull(BINS - 1, 2, 0)], from_replica=True)
    workers.epoch([Pull(BINS - 2, 2, 0)])
    names = {f"worker-000{worker}" for worker in range(3)} | {"worker-0000.replicas"}
    assert opened == {name: {(fsync, fsync)} for name in names}


def entry_more(txn, bin_):
    name = bin_key(STATE, bin_) + b"ghost"
    txn.put(name, stored_value(name, b"12345678"))


def entry_longer(txn, bin_):
    """One that matches its checksum, where the recorded size does not know of its bytes."""
    name, value = next(iter(stored_items(txn, bin_)))
    txn.put(name, stored_value(name, bytes(value[:-4]) + b"more"))


def entries_changed(txn, bin_):
    for name, value in stored_items(txn, bin_):
        txn.put(name, bytes([value[0] ^ 1]) + bytes(value[1:]))


@pytest.mark.parametrize("damage", [entry_more, entry_longer, entries_changed])
def test_nothing_of_a_damaged_replica_gets_into_an_environment_that_is_rebuilt(tmp_path, damage):
    workers = replicated(tmp_path, keys=200)
    bins = [bin_ for bin_ in range(BINS) if workers.location[bin_] == 1]
    before = contents(workers.environment(1), bins)
    with Store.open(replica_path(workers.spec.state_dir, 0)) as store, store.begin() as txn:
        damage(txn, bins[0])
    workers.lose(1)
    known = tuple((bin_, 0, workers.number - 1) for bin_ in bins)
    reports = workers.epoch(records=0, replicas=known)
    assert {r.worker: r.recovered for r in reports if r.recovered} == {1: "missing"}
    assert contents(workers.environment(1), bins) == before
    workers.epoch([Pull(bin_, 1, 0) for bin_ in bins])
    workers.epochs(2)  # the first of them drops the bins
    workers.check()


def test_a_full_map_of_a_rebuilt_environment_is_not_taken_for_a_damaged_replica(tmp_path, monkeypatch):
    workers = replicated(tmp_path, operator=HashCount(preload=50_000))
    bins = [bin_ for bin_ in range(BINS) if workers.location[bin_] == 1]
    workers.lose(1)
    monkeypatch.setattr(impls.worker.held, "MAP_BYTES", SMALL)
    copied = []
    real = impls.worker.opening.copy_replicas
    monkeypatch.setattr(
        impls.worker.opening, "copy_replicas", lambda *args, **more: copied.append(real(*args, **more)) or copied[-1]
    )
    workers.epoch(records=3000, replicas=tuple((bin_, 0, workers.number - 1) for bin_ in bins))
    assert [sorted(have) for have, _ in copied[-1:]] == [bins]
    workers.epoch()
    workers.check()


@pytest.mark.parametrize("damage", [entry_more, entries_changed])
def test_a_pull_from_a_damaged_replica_takes_the_bin_from_the_checkpoint(tmp_path, damage):
    workers = replicated(tmp_path, keys=200)
    bin_ = BINS - 1
    with Store.open(replica_path(workers.spec.state_dir, 0)) as store, store.begin() as txn:
        damage(txn, bin_)
    reports = workers.epoch([Pull(bin_, 2, 0)], from_replica=True)
    assert (reports[0].moves.bins, reports[0].moves.restored) == ([bin_], 1)
    workers.epoch()
    workers.check()


@pytest.mark.parametrize("operator", [HashCount(), HashCount(preload=1000), DenseCount(2000)])
def test_bins_as_a_worker_keeps_them_are_sound_replicas(tmp_path, operator):
    workers = replicated(tmp_path, operator=operator)
    for bins, path in (
        (others_of(workers, 0), replica_path(workers.spec.state_dir, 0)),
        (sorted(set(range(BINS)) - set(others_of(workers, 0))), workers.environment(0)),
    ):
        with Store.open(path) as store, store.reading(buffers=False) as txn:
            for bin_ in bins:
                verify_bin(txn, bin_)


def test_a_replica_that_is_forgotten_is_deleted_and_the_last_one_with_its_environment(tmp_path):
    workers = replicated(tmp_path)
    path, bins = replica_path(workers.spec.state_dir, 0), others_of(workers, 0)
    kept = tuple((bin_, 0, workers.number - 1) for bin_ in bins[1:])
    workers.epoch(forgotten=[(bins[0], 0)], replicas=kept)
    assert [bin_ for bin_, (items, _) in contents(path, bins).items() if items] == bins[1:]
    workers.epoch(forgotten=[(bin_, 0) for bin_ in bins[1:]])
    assert not list(path.parent.glob("*replicas*"))
    workers.epoch(forgotten=[(bins[0], 1)])  # where there is none
    assert not list(path.parent.glob("*replicas*"))
    workers.check()
