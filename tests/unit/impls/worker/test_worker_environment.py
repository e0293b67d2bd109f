"""A worker's environment between commits: what an overtaken task may still do, and what a batch brings again."""

from dataclasses import replace

import pyarrow as pa
import pytest
from environments import open_environment

from impls.durability.frame import frames_of
from impls.durability.restore import RestoreRequest, restore
from impls.errors import StateError
from impls.operators import DenseCount
from impls.protocol.session import NewEpoch
from impls.realtime.worker import RealTimeWorker
from impls.store.entries import BLOCK_BYTES, SLOTS
from impls.store.environment import Store, set_aside, store_path
from impls.store.queues import QueueIndex
from impls.store.records import Results, put_queued, stored_queues, to_bytes


def commit(env, queue=(), ended=b"", report=""):
    """Commits what queues records, may report what must outlive the task, and may end the epoch."""
    txn = env.begin()
    for bin_, entry in queue:
        put_queued(txn, bin_, entry)
    frame = env.frame(queue=list(queue))
    report = report or env.state.report
    after = replace(env.state, commits=env.state.commits + 1, report=report)
    raw = env.commit(txn, frame, Results.none(), after, report=ended)
    return frame, raw


def queued(env):
    with env.reading() as txn:
        return {bin_: records for bin_, (records, _) in QueueIndex.of(stored_queues(txn)).lengths.items()}


def entry(env, offset):
    columns = {
        "bin": pa.array([1], pa.int32()),
        "partition": pa.array([0], pa.int32()),
        "offset": pa.array([offset], pa.int64()),
    }
    return 1, env.state.number.to_bytes(6, "big") + (1).to_bytes(4, "little") + to_bytes(pa.table(columns))


def test_a_task_whose_environment_was_set_aside_writes_nothing_more(task):
    env = open_environment(task)
    frame, raw = commit(env)
    env.log(frame.epoch, raw)
    frame, raw = commit(env)
    set_aside(store_path(task.state_dir, 0))
    with pytest.raises(StateError, match="Another task has taken over the state"):
        env.log(frame.epoch, raw)
    env.close()


@pytest.mark.parametrize(("batch", "resumed", "left"), [(0, False, {}), (0, True, {1: 1}), (1, False, {1: 1})])
def test_what_the_epoch_has_queued_is_given_up_when_its_batch_comes_again_alone(task, batch, resumed, left):
    env = open_environment(task)
    frame, raw = commit(env, [entry(env, 7)])
    env.log(frame.epoch, raw)
    env.close()
    env = open_environment(task, batch, resumed=resumed)
    assert queued(env) == left
    env.close()


def test_a_commit_that_was_not_logged_is_logged_when_its_environment_is_opened_again(task):
    env = open_environment(task)
    _, raw = commit(env)
    env.close()
    open_environment(task, 1).close()
    assert task.spec.files.read("log/0000000000-00000") == raw


@pytest.mark.parametrize("rebuilt", [False, True])
def test_the_report_so_far_is_in_the_frames_that_add_to_it_and_comes_back_whole(task, rebuilt):
    env, text_of = open_environment(task), '{"worker": 0, "text": "%s"}'
    lengths = []
    for text in (text_of % "a", "", text_of % ("a" * 10_000), "", ""):
        frame, raw = commit(env, report=text)
        env.log(frame.epoch, raw)
        lengths.append(len(raw))
    env.close()
    assert max(lengths[:2] + lengths[3:]) < 1_000 < lengths[2]
    if rebuilt:
        set_aside(store_path(task.state_dir, 0))
    env = open_environment(task)
    assert (env.state.commits, env.state.report) == (5, text_of % ("a" * 10_000))
    env.close()


@pytest.mark.parametrize("cut", [1, 0])
def test_a_segment_of_an_ended_epoch_that_is_cut_off_restores_nothing(task, tmp_path, cut):
    """Cut inside its last frame, or behind the one before, it looks like that of a worker that has died."""
    env = open_environment(task)
    for ended in (b"", b'{"worker": 0}'):
        env.log(0, commit(env, ended=ended)[1])
    env.close()
    segment = tmp_path / "checkpoint" / "log" / "0000000000-00000"
    raw = segment.read_bytes()
    frames, _ = frames_of(raw, str(segment))
    last = len(frames[-1].encode())
    segment.write_bytes(raw[: len(raw) - last + cut])
    whole = task.spec.source()
    with Store.open(tmp_path / "other") as store, store.begin() as txn:
        with pytest.raises(StateError, match="0000000000-00000 is cut off"):
            restore(whole, txn, 0, RestoreRequest({0: 0}, open_from=1))
        restore(whole, txn, 0, RestoreRequest({0: 0}, open_from=0))  # of the epoch under way it may be a crash
        segment.write_bytes(raw)
        assert restore(whole, txn, 0, RestoreRequest({1: 0}, open_from=1)).sizes == [(1, 0)]


def test_a_map_that_is_too_small_for_the_state_it_is_made_with_is_made_larger(task, monkeypatch):
    monkeypatch.setattr("impls.worker.held.MAP_BYTES", 1 << 20)
    blocks = 400  # of each bin
    spec = replace(task.spec, operator=DenseCount(keys=SLOTS * blocks * task.spec.bins))
    worker = RealTimeWorker(spec, 0, batch=0, say=[].append)
    worker.hear(NewEpoch(task.order))
    worker.step()
    worker.close()
    with Store.open(store_path(task.state_dir, 0)) as store:
        assert store.used_bytes() > BLOCK_BYTES * blocks * task.spec.bins
