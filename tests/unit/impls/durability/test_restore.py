"""What a restoration takes from snapshots, changelog and bins that are there already."""

import pyarrow as pa
import pytest

from impls.durability.files import Files
from impls.durability.frame import Frame, frame_name
from impls.durability.restore import RestoreRequest, Source, restore
from impls.operators import HashCount
from impls.store.environment import Store
from impls.store.records import queue_lengths, to_bytes

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
