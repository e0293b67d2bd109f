"""A worker whose environment is lost, stale or damaged is rebuilt from snapshots and changelog, and nothing is lost."""

import contextlib
import resource
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "simulation"))

from chaos.pages import leaf_nodes
from durable import BINS, Workers
from memory import RESULTS

from impls.durability.files import Files
from impls.durability.frame import frame_name
from impls.errors import StateError
from impls.operators import DenseCount, HashCount
from impls.protocol.plan import Pull
from impls.store.environment import Store
from impls.store.tables import SIZE, bin_key
from impls.worker import held as working

OPERATORS = [HashCount(), HashCount(preload=1000), DenseCount(2000)]


@pytest.fixture(params=OPERATORS, ids=["hash", "preloaded", "dense"])
def workers(request, tmp_path):
    return Workers(tmp_path, request.param)


def recovered(reports):
    return {r.worker: r.recovered for r in reports if r.recovered}


@pytest.mark.parametrize("lost_at", [1, 5, 33])
def test_a_lost_environment_is_rebuilt(workers, lost_at):
    for _ in range(lost_at):
        workers.epoch()
    workers.lose(1)
    assert recovered(workers.epoch()) == {1: "missing"}
    for _ in range(3):
        assert not recovered(workers.epoch())
    workers.check()


def test_all_environments_lost_at_once_are_rebuilt_also_with_another_number_of_workers(workers):
    workers.epochs(27)
    shutil.rmtree(workers.folder / "state")
    moves = [Pull(b, int(workers.location[b]), b % 5) for b in range(BINS) if workers.location[b] != b % 5]
    reports = workers.epoch(moves)
    assert sum(len(r.moves.bins) for r in reports) == len(moves)
    workers.epoch()
    workers.check()


def test_a_stale_environment_is_rebuilt(workers):
    workers.epochs(2)
    copy = workers.folder / "old"
    shutil.copytree(workers.environment(1), copy)
    workers.epochs(4)
    workers.lose(1)
    copy.rename(workers.environment(1))
    assert recovered(workers.epoch()) == {1: "stale: epoch 1"}
    workers.epoch()
    workers.check()


def test_an_environment_of_a_later_generation_is_refused_and_left_alone(workers):
    workers.generation = 2
    workers.epoch()
    workers.generation = 1
    before = (workers.environment(0) / "data.mdb").read_bytes()
    with pytest.raises(StateError, match="generation 2, ahead of epoch 1 of generation 1"):
        workers.epoch()
    assert (workers.environment(0) / "data.mdb").read_bytes() == before


def flip(workers, random, *, everywhere=False):
    """Flips a bit of one item in worker 1's environment, or of every item, also of those that earlier commits left.

    What LMDB itself has in its pages is left alone: it believes that, and a process may end.
    """
    file = workers.environment(1) / "data.mdb"
    raw = bytearray(file.read_bytes())
    nodes = list(leaf_nodes(raw, 4096))
    for node in nodes if everywhere else [nodes[int(random.integers(len(nodes)))]]:
        places = [*range(node.key_at, node.key_at + node.key_bytes)]
        places += range(node.value_at, node.value_at + node.value_bytes)
        raw[places[int(random.integers(len(places)))]] ^= 1 << int(random.integers(8))
    file.write_bytes(raw)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("seed", range(6))
def test_flipped_bits_in_an_environment_are_found_and_it_is_rebuilt(workers, seed):
    workers.epochs(12)
    flip(workers, np.random.default_rng(seed), everywhere=True)
    found = recovered(workers.epoch(records=1500))
    assert list(found) == [1]
    assert found[1].startswith("damaged")
    for _ in range(25):  # every bin is snapshotted, that is read as a whole, within 20
        assert not recovered(workers.epoch())
    workers.check()


def test_a_bin_is_not_put_beside_a_damaged_key_where_it_would_hide_others(workers):
    workers.epochs(3)
    file = workers.environment(0) / "data.mdb"
    with Store.open(file.parent, create=False) as store, store.reading() as txn:
        last = bin_key(SIZE, max(np.flatnonzero(workers.location == 0).tolist()))
        stored = bytes(txn.get(last))
    raw = file.read_bytes()
    assert last + stored in raw
    file.write_bytes(raw.replace(last + stored, bytes([SIZE[0] ^ 8]) + last[1:] + stored))
    found = recovered(workers.epoch([Pull(BINS - 1, 2, 0)], records=0))
    assert {worker: cause[:7] for worker, cause in found.items()} == {0: "damaged"}
    workers.epochs(2)
    workers.check()


def test_a_flipped_bit_is_found_where_bytes_are_in_use_and_harmless_elsewhere(workers):
    """Most pages are free, as LMDB writes a changed page anew; whatever is hit, no count is lost or wrong."""
    random, found, flips = np.random.default_rng(9), [], 40
    workers.epochs(12)
    for _ in range(flips):
        flip(workers, random)
        found.append(recovered(workers.epoch(records=500)))
    found += [recovered(workers.epoch()) for _ in range(25)]
    workers.check()
    rebuilt = [why for why in found if why]
    assert 0 < len(rebuilt) < flips
    assert all(list(why) == [1] and why[1].startswith("damaged") for why in rebuilt), rebuilt


def test_a_truncated_environment_is_rebuilt(workers):
    workers.epochs(5)
    file = workers.environment(2) / "data.mdb"
    with file.open("r+b") as opened:
        opened.truncate(file.stat().st_size // 2 // 4096 * 4096)
    assert "truncated" in recovered(workers.epoch())[2]
    workers.epoch()
    workers.check()


@pytest.mark.parametrize("from_checkpoint", [False, True])
def test_bins_are_pulled_from_the_checkpoint_when_their_source_is_not_there_or_the_plan_says_so(
    workers, from_checkpoint
):
    workers.epochs(9)
    if not from_checkpoint:
        workers.lose(0)
    reports = workers.epoch([Pull(0, 0, 2), Pull(1, 0, 2), Pull(15, 2, 1)], from_checkpoint=from_checkpoint)
    assert reports[2].moves.bins == [0, 1]
    assert reports[2].moves.restored in ({2} if from_checkpoint else {0, 2})  # worker 0 may have been rebuilt before
    workers.epochs(3)
    workers.check()


def test_a_bin_that_went_there_and_back_is_followed_through_its_owners(workers):
    workers.replay_epochs = 60
    workers.keeper = workers.open_keeper()
    for epoch in range(12):
        here = int(workers.location[3])
        workers.epoch([Pull(3, here, (here + 1) % 3)] if epoch % 3 == 1 else [])
    for worker in range(3):
        workers.lose(worker)
    workers.epochs(2)
    workers.check()


def test_without_durability_a_lost_environment_is_an_error_with_a_sentence(tmp_path):
    workers = Workers(tmp_path, durable=False)
    workers.epoch()
    workers.lose(1)
    with pytest.raises(StateError, match='worker-0001, but it is missing; with durability "none" there is no copy'):
        workers.epoch()


def test_a_host_that_does_not_see_the_checkpoint_says_so(workers):
    workers.epochs(5)
    workers.lose(0)
    shared = workers.folder / "checkpoint"
    shared.rename(shared.with_name("elsewhere"))
    shared.mkdir()
    with pytest.raises(StateError, match="is missing, and no other is there: mount the checkpoint's file system"):
        workers.epoch()


@pytest.mark.sampled(5)
@pytest.mark.parametrize("folder", ["log", "snapshots"])
@pytest.mark.parametrize("damage", ["flipped", "truncated", "deleted", "another format"])
def test_a_damaged_checkpoint_file_is_named_and_no_state_is_made_up(workers, folder, damage):
    workers.epochs(40)
    workers.lose(0)
    files = sorted((workers.folder / "checkpoint" / folder).iterdir())
    for file in files:
        raw = bytearray(file.read_bytes())
        if damage == "deleted":
            file.unlink()
            continue
        if damage == "flipped":
            raw[len(raw) // 2] ^= 4
        elif damage == "truncated":
            del raw[len(raw) // 2 :]
        else:
            raw[4] = 9
        file.write_bytes(raw)
    says = {"deleted": "is missing", "another format": "has format 9"}.get(damage, "torn or damaged|is cut off")
    with pytest.raises(StateError, match=f"/{folder}/.*{says}"):
        workers.epoch()
    workers.number -= 1
    with pytest.raises(StateError, match=f"/{folder}/"):
        workers.epoch()


def test_a_torn_last_frame_is_written_again_when_a_driver_starts(workers):
    workers.epochs(4)
    frame = sorted((workers.folder / "checkpoint" / "log").iterdir())[-1]
    whole = frame.read_bytes()
    frame.write_bytes(whole[:-7])
    workers.epoch(check_frame=True)
    assert frame.read_bytes() == whole


def next_epoch(workers):
    """An epoch that is to be run by hand, behind four others: its order, its keys and their owners."""
    workers.epochs(4)
    workers.number += 1
    keys = np.arange(50)
    workers.truth.update(keys.tolist())
    return workers.order(), keys, workers.location[workers.bins_of(keys)]


def test_a_worker_that_two_attempts_died_in_is_rebuilt(workers):
    order, keys, owner = next_epoch(workers)
    reports = [workers.run(order, w, keys, owner, attempt=2 if w == 1 else 0) for w in range(3)]
    assert recovered(reports) == {1: "two attempts died in it"}
    workers.epoch()
    workers.check()


@pytest.mark.parametrize("reads", range(1, 8))
def test_a_frame_that_an_attempt_writes_while_another_one_rebuilds_is_there_or_not(workers, monkeypatch, reads):
    """The rebuilt worker is behind the epoch or in front of it, and nothing in between, whichever file it has read."""
    order, keys, owner = next_epoch(workers)
    workers.run(order, 1, keys, owner)
    name, read = frame_name(order.written.epoch, 1), Files.read
    raw, seen = workers.files.read(name), []
    workers.files.delete([name])
    workers.lose(1)
    RESULTS[workers.output.name].clear()  # the first attempt had sent nothing when it was overtaken

    def slow(files, wanted):
        if wanted.startswith("log/") and wanted.endswith("-00001"):
            seen.append(wanted)
            if len(seen) == reads:
                workers.files.write(name, raw)
        return read(files, wanted)

    with monkeypatch.context() as patch:
        patch.setattr(Files, "read", slow)
        workers.run(order, 1, keys, owner, attempt=1)
    sent = {int.from_bytes(key, "big") for _, key, _ in workers.output.read()}
    assert sent == set(keys[owner == 1].tolist())
    again = workers.run(order, 1, keys, owner, attempt=2)
    assert (again.repeated, again.records) == (True, int((owner == 1).sum()))


@contextlib.contextmanager
def no_room():
    """No file of this process grows meanwhile, as on a full disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_worker_whose_attempts_could_not_write_is_not_rebuilt(workers):
    order, keys, owner = next_epoch(workers)
    for attempt in range(2):
        with no_room(), pytest.raises(StateError, match="cannot write its state"):
            workers.run(order, 1, keys, owner, attempt=attempt)
    reports = [workers.run(order, w, keys, owner, attempt=2 if w == 1 else 0) for w in range(3)]
    assert recovered(reports) == {}
    workers.epoch()
    workers.check()


def test_the_manifest_of_another_query_or_format_is_refused(workers):
    workers.epochs(11)
    manifest = workers.folder / "checkpoint" / "manifest.json"
    text = manifest.read_text()
    for bad, says in [("{", "damaged"), (text.replace('"q"', '"p"'), "another query"), ('{"format": 7}', "damaged")]:
        manifest.write_text(bad)
        with pytest.raises(Exception, match=says) as caught:
            workers.open_keeper()
        assert str(manifest) in str(caught.value)
        workers.lose(1)
        with pytest.raises(StateError, match=says):
            workers.epoch()
        manifest.write_text(text)
        workers.number -= 1


def test_a_rebuild_begins_with_a_map_that_takes_what_the_checkpoint_has(tmp_path, monkeypatch):
    workers = Workers(tmp_path, keys=20_000, replay_epochs=10)
    for _ in range(15):
        workers.epoch(records=5000)
    monkeypatch.setattr(working, "MAP_BYTES", 64 << 10)
    workers.lose(1)
    opened, open_ = [], working.Held._opened
    monkeypatch.setattr(working.Held, "_opened", lambda one: opened.append(one._worker) or open_(one))
    assert recovered(workers.epoch(records=10)) == {1: "missing"}
    assert opened == [0, 1, 2]
    workers.check()


@pytest.mark.parametrize("lost", [False, True])
def test_what_attempts_under_earlier_drivers_have_left_is_deleted_at_a_start(tmp_path, lost):
    workers = Workers(tmp_path, generation=3)
    workers.epochs(2)
    folder = workers.environment(1).parent
    (folder / ".worker-0001-4711-abcd.aside").mkdir()
    (folder / ".worker-0001-4711-abcd.aside" / "data.mdb").write_bytes(bytes(100))
    for name in (".worker-0001-2-1-0.failed", ".worker-0001-3-9-0.failed", ".worker-00010-1-1-1.failed"):
        (folder / name).touch()
    if lost:
        workers.lose(1)
    workers.epoch(check_frame=True)
    left = {path.name for path in folder.glob(".*")}
    assert left == {".worker-0001-3-9-0.failed", ".worker-00010-1-1-1.failed"}
