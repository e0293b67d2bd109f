"""What a restoration takes from snapshots, changelog and bins that are there already."""

import numpy as np
import pyarrow as pa
import pytest

from impls.durability.files import Files
from impls.durability.frame import Frame, frame_name
from impls.durability.restore import RestoreRequest, Source, restore
from impls.durability.schedule import FinishedEpoch, Manifest, SnapshotSchedule, write_manifest
from impls.durability.snapshot import encode, image_of, snapshot_name
from impls.operators import HashCount
from impls.store.environment import Store
from impls.store.records import put_queued, queue_lengths, to_bytes

RECORD = pa.table({
    "bin": pa.array([1], pa.int32()), "partition": pa.array([0], pa.int32()), "offset": pa.array([7], pa.int64())
})  # fmt: skip


def entry(epoch, records=1):
    raw = to_bytes(pa.concat_tables([RECORD] * records))
    return epoch.to_bytes(6, "big") + records.to_bytes(4, "little") + raw


@pytest.mark.parametrize("have", [{}, {1: 0}, {1: 4}, {1: 5}], ids=str)
def test_a_queue_is_restored_whatever_epoch_a_copy_of_its_bin_shows(tmp_path, have):
    """A copy has no queue, and what it shows of the state says nothing of which records wait."""
    files = Files(str(tmp_path / "checkpoint"))
    files.make_folders(["log", "snapshots"])
    queued = {1: [(1, entry(1))], 2: [(1, None), (1, entry(2, 2))], 5: [(1, entry(5))]}
    for epoch in range(6):
        files.write(frame_name(epoch, 0), Frame("q", 0, epoch, 1, queue=queued.get(epoch, [])).encode())
    source = Source(files, "q", 4, HashCount())
    with Store.open(tmp_path / "state") as store, store.begin() as txn:
        restore(source, txn, 5, RestoreRequest({1: 0}, (1,), 0, have))
        assert {bin_: records for bin_, (records, _) in queue_lengths(txn).items()} == {1: 3}


def test_a_queue_of_an_earlier_life_of_the_worker_does_not_come_back(tmp_path):
    """A bin was queued at worker 1, snapshotted, pulled, moved away; then it comes back to that worker, now fresh."""
    files = Files(str(tmp_path / "checkpoint"))
    files.make_folders(["log", "snapshots"])
    before, away = np.array([0, 0], np.int32), np.array([0, 1], np.int32)
    sizes = np.ones(2, np.int64)
    with Store.open(tmp_path / "one") as store, store.begin() as txn:
        put_queued(txn, 1, entry(1, 2))
        files.write(snapshot_name(1, 1, 1), encode("q", 1, 1, [image_of(txn, 1, state=False, queue=True)]))
        files.write(snapshot_name(1, 0, 1), encode("q", 0, 1, [image_of(txn, 1, state=True, queue=False)]))
    schedule = SnapshotSchedule(Manifest.new("q", 2), epoch=0, sizes=sizes, location=before)
    written = {1: ([1], 10), 0: ([1], 10)}
    schedule.observe(FinishedEpoch(1, 1, [1], 100, written, before, away, sizes))
    write_manifest(files, schedule.manifest)
    life = {1: [(1, entry(1, 2))], 2: [(1, None)], 3: [], 4: [], 6: [(1, entry(6))]}  # of epoch 5 it is not
    for epoch in range(1, 7):
        files.write(frame_name(epoch, 0), Frame("q", 0, epoch, 1).encode())
        if epoch in life:
            fresh = epoch in {1, 6}
            files.write(frame_name(epoch, 1), Frame("q", 1, epoch, 1, fresh=fresh, queue=life[epoch]).encode())
    with Store.open(tmp_path / "two") as store, store.begin() as txn:
        restore(Source(files, "q", 2, HashCount()), txn, 6, RestoreRequest({}, (1,), 1))
        assert {bin_: records for bin_, (records, _) in queue_lengths(txn).items()} == {1: 1}
