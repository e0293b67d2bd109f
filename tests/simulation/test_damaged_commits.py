"""A damaged key hides a record of an environment: it is not taken for absent, nor an older one for the newest."""

import sys
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from environments import open_environment

sys.path.insert(0, str(Path(__file__).parent))

from chaos.pages import leaf_nodes

from impls.durability.frame import frames_in
from impls.errors import CorruptStateError
from impls.protocol.report import Report
from impls.store.environment import Meta, read_meta, store_path, write_meta
from impls.store.records import Results, put_queued, to_bytes
from impls.store.tables import META, OUTBOX, QUEUE, bin_key
from impls.worker.commit import CommitInput, commit_end, run_commit

HIDING = (0, 1, 6, 7, 12, 15)  # bits of a name


def commit(env, **changes):
    """Commits and logs; returns its frame, encoded."""
    txn, frame = env.begin(), env.frame()
    try:
        raw = env.commit(txn, frame, Results.none(), replace(env.state, commits=env.state.commits + 1, **changes))
    except BaseException:
        txn.abort()
        raise
    env.log(frame.epoch, raw)
    return raw


def overwrite(task, raw):
    """Writes the bytes of the environment's file, which is open."""
    with (store_path(task.spec.state_dir, 0) / "data.mdb").open("r+b") as opened:
        opened.write(raw)


def flip(task, name, bit):
    """Flips a bit of a name where it stands in the file, which may be open."""
    file = store_path(task.spec.state_dir, 0) / "data.mdb"
    before = file.read_bytes()
    raw = bytearray(before)
    for node in leaf_nodes(before, 4096):
        if node.key(before) == name:
            raw[node.key_at + bit // 8] ^= 1 << bit % 8
    overwrite(task, raw)


RECORDS = [OUTBOX + name for name in (b"after", b"so-far", b"commit")]


@pytest.mark.parametrize("name", RECORDS)
@pytest.mark.parametrize("bit", HIDING)
def test_an_item_of_the_last_commit_that_is_hidden_is_missed_when_the_environment_is_opened(task, name, bit):
    env = open_environment(task)
    commit(env, report='{"worker": 0}')
    commit(env)
    flip(task, name, bit)
    env.close()
    with pytest.raises(CorruptStateError):
        open_environment(task)


@pytest.mark.parametrize("name", RECORDS)
@pytest.mark.parametrize("bit", HIDING)
def test_no_commit_writes_a_second_item_beside_one_that_is_hidden(task, name, bit):
    env = open_environment(task)
    commit(env, report='{"worker": 0}')
    flip(task, name, bit)
    with pytest.raises(CorruptStateError):
        commit(env, report='{"worker": 0, "records": 1}')
    env.close()


def test_the_record_of_an_earlier_commit_is_not_that_of_the_last(task):
    env = open_environment(task)
    commit(env)
    with env.reading(buffers=False) as txn:
        earlier = txn.get(OUTBOX + b"commit")
    commit(env)
    with env._opened.store.begin() as txn:
        txn.put(OUTBOX + b"commit", earlier)
    env.close()
    with pytest.raises(CorruptStateError, match="last commit is not where it was stored"):
        open_environment(task)
    assert [frame.commit["of"] for frame in frames_in(task.spec.files, 0, 0)] == [0, 1], "nothing is logged twice"


@pytest.mark.parametrize("bit", HIDING)
def test_a_hidden_report_of_an_epoch_is_not_taken_for_none(task, bit):
    env = open_environment(task)
    commit_end(env, task, Report(0), ())
    assert env.ended_report(0) is not None
    flip(task, OUTBOX + b"report", bit)
    with pytest.raises(CorruptStateError):
        env.ended_report(0)
    env.close()


def queue_records(env, bin_=1):
    """Queues a record of a bin with a commit of its own; returns the name of the item."""
    columns = {"bin": pa.array([bin_], pa.int32()), "partition": pa.array([0], pa.int32())}
    columns |= {"offset": pa.array([5], pa.int64()), "key": pa.array([7], pa.int64())}
    entry = env.state.number.to_bytes(6, "big") + (1).to_bytes(4, "little") + to_bytes(pa.table(columns))
    txn = env.begin()
    put_queued(txn, bin_, entry)
    frame = env.frame(queue=[(bin_, entry)])
    env.log(0, env.commit(txn, frame, Results.none(), replace(env.state, commits=env.state.commits + 1)))
    env.queues = env.queues.after(frame.queue)
    return bin_key(QUEUE, bin_) + entry[:6]


@pytest.mark.parametrize("bit", [1, 2, 6, 7])
def test_a_queue_that_is_hidden_when_an_environment_is_opened_or_by_a_commit_is_missed(task, bit):
    """The damaged name is one of another table, in which nobody looks for queues."""
    env = open_environment(task)
    name = queue_records(env)
    env.close()
    env = open_environment(task, 1)
    assert env.queues.lengths.keys() == {1}
    flip(task, name, bit)
    with pytest.raises(CorruptStateError, match="queues are not as the last commit left them"):
        run_commit(env, task, CommitInput(None, blocked={1}), Report(0))
    env.close()
    with pytest.raises(CorruptStateError):
        open_environment(task, 1)


@pytest.mark.parametrize("damaged", range(4))
def test_any_bit_of_the_name_of_what_waits_is_missed_by_the_next_commit(task, damaged):
    env = open_environment(task)
    name = [queue_records(env, bin_) for bin_ in (1, 2, 1, 2)][damaged]
    before = (store_path(task.spec.state_dir, 0) / "data.mdb").read_bytes()
    for bit in range(8 * len(name)):
        flip(task, name, bit)
        with pytest.raises(CorruptStateError):
            run_commit(env, task, CommitInput(None, blocked={1, 2}), Report(0))
        overwrite(task, before)
    run_commit(env, task, CommitInput(None, blocked={1, 2}), Report(0))
    env.close()


def test_records_that_are_damaged_while_they_wait_are_missed_by_the_commit_that_applies_them(task):
    env = open_environment(task)
    name = queue_records(env)
    with env.reading(buffers=False) as txn:
        stored = txn.get(name)
    raw = (store_path(task.spec.state_dir, 0) / "data.mdb").read_bytes()
    overwrite(task, raw.replace(stored, stored[:-1] + bytes([stored[-1] ^ 1])))
    run_commit(env, task, CommitInput(None, blocked={1}), Report(0))
    before = env.state
    with pytest.raises(CorruptStateError, match="its checksum does not match"):
        run_commit(env, task, CommitInput(None), Report(0))
    assert env.state == before
    assert env.queues.lengths.keys() == {1}
    env.close()


def test_what_a_commit_logs_after_a_damaged_environment_was_rebuilt_for_a_larger_map_is_read(task):
    env = open_environment(task)
    commit(env)
    with env._opened.store.begin() as txn:
        write_meta(txn, Meta.new("q", 0, read_meta(txn).epoch, 1))
        stored = bytearray(txn.get(META))
        stored[0] ^= 1
        txn.put(META, bytes(stored))
    env.grow()
    assert env.report.recovered.startswith("damaged")
    commit(env)
    env.close()
    assert [frame.commit["of"] for frame in frames_in(task.spec.files, 0, 0)] == [0, 1]
