"""What a restoration takes from snapshots, changelog and bins that are there already."""

import numpy as np
import pyarrow as pa
import pytest

from impls.durability.files import Files
from impls.durability.frame import Frame, frame_name
from impls.durability.restore import RestoreRequest, restore
from impls.durability.schedule import Manifest, write_manifest
from impls.durability.snapshot import encode, image_of, snapshot_name
from impls.durability.source import RestoreSource
from impls.operators import HashCount
from impls.store.environment import Store
from impls.store.queues import QueueIndex
from impls.store.records import put_queued, stored_queues, to_bytes

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
        files.write(frame_name(epoch, 0), Frame("q", 0, epoch, 1, queue=queued.get(epoch, []), report=b"{}").encode())
    source = RestoreSource(files, "q", 4, HashCount())
    with Store.open(tmp_path / "state") as store, store.begin() as txn:
        restore(source, txn, 5, RestoreRequest({1: 0}, (1,), 0, have))
        assert {bin_: records for bin_, (records, _) in QueueIndex.of(stored_queues(txn)).lengths.items()} == {1: 3}


@pytest.mark.parametrize("fresh", [None, 3, 4])
def test_a_queue_of_a_workers_earlier_life_is_not_restored(tmp_path, fresh):
    """The worker applied it, gave its last bin away, began anew in an epoch, and got the bin back."""
    files = Files(str(tmp_path / "checkpoint"))
    files.make_folders(["log", "snapshots"])
    source = RestoreSource(files, "q", 4, HashCount())
    with Store.open(tmp_path / "before") as store, store.begin() as txn:
        put_queued(txn, 1, entry(1, 2))
        image = image_of(txn, 1, state=True, queue=True)
    files.write(snapshot_name(1, 0, 1), encode("q", 0, 1, [image]))
    base, other = np.array([5, 1, 5, 5]), np.array([-1, 1, -1, -1])
    write_manifest(files, Manifest("q", base, other, *np.array([[-1, 0, -1, -1]] * 2), other))
    taken = {2: [(1, None)]} if fresh else {}
    for epoch in range(2, 6):
        frame = Frame("q", 0, epoch, 1, queue=taken.get(epoch, []), fresh=epoch == fresh, report=b"{}")
        files.write(frame_name(epoch, 0), frame.encode())
    with Store.open(tmp_path / "state") as store, store.begin() as txn:
        restore(source, txn, 5, RestoreRequest({1: 0}, (1,), 0))
        found = {bin_: records for bin_, (records, _) in QueueIndex.of(stored_queues(txn)).lengths.items()}
    assert found == ({} if fresh else {1: 2})
