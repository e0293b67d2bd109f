"""A checkpoint made from native state goes on behind its last batch: workers restore every bin from it and move it."""

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from inprocess import InProcessExecutor
from memory import RESULTS, MemoryOutput
from native import native_log

from impls import catalog
from impls.adoption.cutover import Target, file_of, write_cutover, write_images
from impls.adoption.native import read_log
from impls.driver.checkpoint import Checkpoint
from impls.driver.driver import Driver
from impls.durability.files import Files
from impls.durability.whole import made_whole
from impls.errors import UsageError
from impls.operators import Aggregate
from impls.placement import initial
from impls.protocol.controller import Controller
from impls.spark.source import epoch_begin
from impls.store.hashing import hash_bytes
from impls.worker.query import QuerySpec

BINS, BATCH, KEYS = 128, 7, 700
SETTINGS = {"key": "grouping_key", "mode": "micro-batch", "bins": BINS, "changelog": True, "state": "own"}
OPERATOR = Aggregate({"user": "string"}, {"n": "count(*)"}, {})
USERS = [f"user-{i}" for i in range(KEYS)]


def bin_of(key: bytes) -> int:
    return hash_bytes(key) * BINS >> 64


def entries() -> pa.Table:
    """Native state: user-i was counted i times."""
    keys = [user.encode() for user in USERS]
    values = OPERATOR.codec.encode([pa.array(range(KEYS), pa.int64())])
    bins = pa.array(list(map(bin_of, keys)), pa.int32())
    return pa.table({"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary()), "bin": bins})


@pytest.fixture
def adopted(tmp_path):
    log = read_log(Files(str(native_log(tmp_path / "native", BATCH, BATCH + 1))))
    with made_whole(tmp_path / "checkpoint") as folder:
        opened = Checkpoint(folder, SETTINGS, operator=OPERATOR)
        files, table, sizes = Files(str(opened.own)), entries(), np.zeros(BINS, np.int64)
        files.make_folders(["log", "snapshots"])
        target = Target(files, opened.query, log.batch, BINS)
        numbers = np.array([file_of(bin_, BINS) for bin_ in table.column("bin").to_pylist()])
        for number in np.unique(numbers):
            batches = iter(table.filter(pa.array(numbers == number)).to_batches(max_chunksize=5))
            for done in write_images(target, batches):
                sizes[done.column("bin").to_numpy()] = done.column("size").to_numpy()
        write_cutover(opened, OPERATOR, files, log, sizes=sizes, workers=2)
        opened.close()
    return tmp_path / "checkpoint"


def records(users: list[str]) -> pa.Table:
    keys = [user.encode() for user in users]
    n = len(users)
    return pa.table({
        "bin": pa.array(list(map(bin_of, keys)), pa.int32()), "partition": pa.array([0] * n, pa.int32()),
        "offset": pa.array(range(n)), "time": pa.array([None] * n, pa.int64()), "key": pa.array(keys, pa.binary()),
        "user": users,
    })  # fmt: skip


def test_workers_go_on_with_the_counts_and_they_move(adopted, tmp_path):
    opened = Checkpoint(adopted, SETTINGS, operator=OPERATOR)
    files = Files(str(opened.own))
    spec = QuerySpec(opened.query, BINS, OPERATOR, MemoryOutput(str(tmp_path)), str(tmp_path / "state"), files)
    controller = Controller(initial(BINS, 5), catalog.make("megaphone-batched"))
    driver = Driver(controller, opened, InProcessExecutor(spec), files=files)
    assert driver.last_epoch == BATCH
    assert set(controller.location.tolist()) == {0, 1}
    driver.run_epoch(records(USERS), BATCH + 1)
    driver.command("rescale", initial(BINS, 4), "to 4")
    epoch = BATCH + 2
    while controller.migrating:
        driver.run_epoch(records(USERS[:50]), epoch)
        epoch += 1
    driver.run_epoch(records(USERS), epoch)
    opened.close()
    last = {key.decode(): json.loads(value) for _, _, _, key, value in RESULTS[str(tmp_path)]}
    more = epoch - BATCH - 2
    assert last == {user: {"user": user, "n": i + 2 + (more if i < 50 else 0)} for i, user in enumerate(USERS)}
    assert set(controller.location.tolist()) == {0, 1, 2, 3}


def test_spark_goes_on_at_the_offsets_behind_the_last_committed_batch(adopted):
    spark = adopted / "spark"
    assert sorted(path.name for path in (spark / "offsets").iterdir()) == [str(BATCH - 1), str(BATCH)]
    assert epoch_begin(spark, BATCH + 1) == {"in": {0: 10, 1: 20}}
    assert (spark / "commits" / str(BATCH)).read_text().startswith("v1\n")


def test_other_settings_and_another_operator_are_refused(adopted):
    with pytest.raises(UsageError, match="bins=128, not 64"):
        Checkpoint(adopted, {**SETTINGS, "bins": 64}, operator=OPERATOR)
    with pytest.raises(UsageError, match=r"operator\.aggregates"):
        Checkpoint(adopted, SETTINGS, operator=Aggregate({"user": "string"}, {"n": "sum(a)"}, {"a": "int"}))


def test_an_interrupted_adoption_leaves_nothing_that_can_be_started(tmp_path):
    into = tmp_path / "deep" / "checkpoint"
    with pytest.raises(FileNotFoundError), made_whole(into) as folder:
        shutil.copy(folder / "nothing", folder / "half")
    assert not list(into.parent.iterdir())
    (into.parent / ".checkpoint.half").mkdir()  # of a process that was killed
    (into.parent / ".checkpoint.half" / "old").touch()
    with made_whole(into) as folder:
        (folder / "whole").touch()
    assert [path.name for path in into.iterdir()] == ["whole"]
    assert [path.name for path in into.parent.iterdir()] == ["checkpoint"]


def test_a_folder_that_is_there_or_being_made_is_refused(tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "file").touch()
    with pytest.raises(UsageError, match="is there already"), made_whole(tmp_path / "there"):
        pass
    (tmp_path / "empty").mkdir()
    with made_whole(tmp_path / "empty"), pytest.raises(UsageError, match="Another process"):
        made_whole(tmp_path / "empty").__enter__()


def test_a_link_to_a_folder_stays_one_and_a_file_system_is_not_replaced(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with made_whole(tmp_path / "link") as folder:
        (folder / "whole").touch()
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real" / "whole").exists()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "is_mount", lambda _: True)
        with pytest.raises(UsageError, match="is that of a file system, which nothing can replace"):
            made_whole(tmp_path / "volume").__enter__()
    into = tmp_path / "into"
    with pytest.raises(UsageError, match=r"The folder .*into cannot be made: Not a directory"), made_whole(into):
        into.touch()  # meanwhile
