"""External state with real worker cores and a real Redis server, without Spark and Kafka: exactly once, and fenced."""

import dataclasses
import multiprocessing
import os
import signal
from dataclasses import dataclass

import numpy as np
import pytest
import redis
from durable import BINS, Workers
from pipeline import Pipeline

from harness.lab.redis_server import RedisServer
from impls.errors import StateError
from impls.mechanisms.external import cache
from impls.mechanisms.external.mechanism import SharedRedis
from impls.operators import DenseCount, HashCount
from impls.protocol.plan import EpochPlan, Pull
from impls.store.records import Results
from impls.worker.attempts import run_epoch
from impls.worker.query import Task
from impls.worker.worker import Worker

OPERATORS = [HashCount(), HashCount(preload=1000), DenseCount(2000)]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with RedisServer(tmp_path_factory.mktemp("redis"), "none") as running:
        yield running


def flush(url):
    """Deletes all that a server has."""
    with redis.Redis.from_url(url) as client:
        client.flushall()


@dataclass
class External(Workers):
    """Workers whose state is in Redis; `shared` says where."""

    shared: SharedRedis | None = None
    durable: bool = False

    def batch(self, keys):
        """Returns (keys, their owners) of records of the next epoch, which begins."""
        self.number += 1
        keys = np.array(keys)
        self.truth.update(keys.tolist())
        return keys, self.location[self.bins_of(keys)]


@pytest.fixture(params=OPERATORS, ids=["hash", "preloaded", "dense"])
def workers(request, tmp_path, server):
    cache._caches.clear()
    flush(server.url)
    return External(tmp_path, request.param, shared=SharedRedis(server.url))


def moves(workers, seed):
    random = np.random.default_rng(seed)
    bins = random.choice(BINS, 5, replace=False).tolist()
    targets = random.integers(0, 4, 5).tolist()
    pairs = zip(bins, targets, strict=True)
    return [Pull(b, int(workers.location[b]), t) for b, t in pairs if workers.location[b] != t]


@pytest.mark.parametrize("cache_bytes", [0, 20_000, 64 << 20])
def test_counts_stay_right_across_moves_whatever_the_cache_holds(workers, cache_bytes):
    workers.shared = SharedRedis(workers.shared.url, cache_bytes)
    for epoch in range(12):
        pulls = moves(workers, epoch) if epoch % 2 else []
        reports = workers.epoch(pulls)
        assert sum(len(report.moves.bins) for report in reports) == len(pulls)
        assert sum(report.moves.bytes for report in reports) == 0, "a move ships nothing"
    workers.check()


class CountsTwice(DenseCount):
    """Adds the records in two halves, so that blocks are read again after they were written."""

    def apply(self, records, state):
        half = len(records) // 2
        parts = [super(CountsTwice, self).apply(part, state) for part in (records[:half], records[half:]) if len(part)]
        seen = {}
        for part in parts:
            seen |= {key: (bin_, value) for bin_, key, value in zip(part.bins, part.keys, part.payloads, strict=True)}
        bins = np.array([bin_ for bin_, _ in seen.values()], np.int32)
        return Results(bins, list(seen), [value for _, value in seen.values()])


def test_a_block_written_twice_in_an_epoch_is_stored_as_it_was_written_last(tmp_path, server):
    flush(server.url)
    workers = External(tmp_path, CountsTwice(2000), shared=SharedRedis(server.url, 0))
    for _ in range(4):
        workers.epoch(records=2000)
    workers.check()


def test_a_second_epoch_with_the_same_keys_reads_nothing_from_the_store(workers):
    for _ in range(3):
        keys, owner = workers.batch(range(0, 2000, 5))
        reports = [workers.run(workers.order(), worker, keys, owner) for worker in range(3)]
    assert all(report.cache.misses == 0 < report.cache.hits for report in reports)
    workers.check()


def test_a_second_attempt_of_a_committed_epoch_sends_again_and_changes_nothing(workers):
    workers.epoch()
    keys, owner = workers.batch(range(100))
    order = workers.order()
    first = [workers.run(order, worker, keys, owner) for worker in range(3)]
    second = [workers.run(order, worker, keys, owner, attempt=1) for worker in range(3)]
    assert [report.repeated for report in first + second] == [False] * 3 + [True] * 3
    assert [report.results for report in first] == [report.results for report in second]
    workers.epoch()
    workers.check()


def test_a_cache_that_another_process_has_left_behind_is_not_believed(workers):
    workers.epochs(2)
    stale = dict(cache._caches)
    cache._caches.clear()
    workers.epochs(2)  # in another process, so to speak
    cache._caches.clear()
    cache._caches.update(stale)
    workers.epoch()
    workers.check()


def test_a_bin_that_went_away_and_came_back_is_read_anew(workers):
    workers.epoch()
    for _ in range(3):
        here = int(workers.location[3])
        workers.epoch([Pull(3, here, (here + 1) % 3)], records=600)
    workers.epoch()
    workers.check()


def test_a_zombie_that_commits_after_a_move_is_refused_by_the_bins_token(workers):
    """Two drivers at odds: the later one moves bin 0 away while the worker still runs an epoch for the earlier one."""
    workers.epoch()
    keys, _ = workers.batch(range(300))
    zombie = workers.order()
    move = dataclasses.replace(workers.order([Pull(0, 0, 1)]), generation=2)
    written = dataclasses.replace(move.written, generation=2)
    move = dataclasses.replace(move, written=written)
    owner = written.plan.routing[workers.bins_of(keys)]
    workers.run(move, 1, keys, owner)
    with pytest.raises(StateError, match=r"^Bin 0 .*: this attempt is outdated\.$"):
        workers.run(zombie, 0, keys, workers.location[workers.bins_of(keys)])
    for worker in (0, 2):
        workers.run(move, worker, keys, owner)
    workers.generation, workers.location, workers.drops = 2, written.plan.routing.copy(), ((0, 0),)
    workers.epoch()
    workers.check()


def test_of_two_attempts_that_run_at_once_only_one_commits(workers):
    workers.epoch()
    keys, owner = workers.batch(range(200))
    order = workers.order()
    slow = Worker(workers.spec, 0)
    slow.begin(order)
    [records] = captured(workers, order, keys, owner)
    for worker in range(3):
        workers.run(order, worker, keys, owner, attempt=1)
    with pytest.raises(StateError, match="Worker 0 was overtaken"):
        slow.commit(records, ends=True)
    slow.close()
    workers.epoch()
    workers.check()


def test_a_driver_that_died_within_a_moving_epoch_is_followed_by_one_that_runs_the_same_plan(workers):
    workers.epoch()
    keys, _ = workers.batch(range(300))
    order = workers.order([Pull(0, 0, 1), Pull(15, 2, 1)])
    owner = order.written.plan.routing[workers.bins_of(keys)]
    assert workers.run(order, 1, keys, owner).moves.bins == [0, 15]
    cache._caches.clear()
    later = dataclasses.replace(order, generation=2)  # the plan stays that of generation 1
    reports = [workers.run(later, worker, keys, owner) for worker in range(3)]
    assert [report.repeated for report in reports] == [False, True, False]
    workers.generation, workers.location = 2, order.written.plan.routing.copy()
    workers.drops = ((0, 0), (15, 2))
    workers.epoch()
    workers.check()


def test_epochs_and_drivers_that_do_not_follow_are_refused(workers):
    workers.generation = 2
    workers.epoch()
    workers.generation = 1
    with pytest.raises(StateError, match="generation 2, ahead of epoch 1 of generation 1: this attempt is outdated"):
        workers.epoch()
    workers.number, workers.generation = 5, 2
    with pytest.raises(StateError, match=r"needs its state of epoch 5, but the Redis server .* has only epoch 0"):
        workers.epoch()


def test_a_store_that_lost_its_data_is_an_error_with_a_sentence(workers):
    workers.epoch()
    flush(workers.shared.url)
    with pytest.raises(StateError, match="has nothing of it: it has lost data, or is another server"):
        workers.epoch()


def test_a_worker_that_comes_back_starts_empty(workers):
    workers.epoch()
    everything = [Pull(b, 2, 0) for b in range(BINS) if workers.location[b] == 2]
    workers.epoch(everything)
    workers.epochs(3)
    workers.epoch([Pull(everything[0].bin, 0, 2)])
    workers.epoch()
    workers.check()


def test_a_held_bin_queues_its_records_in_the_store(workers):
    workers.epoch()
    keys, owner = workers.batch(range(200))
    order = workers.order()
    written = dataclasses.replace(order.written, plan=EpochPlan(order.written.plan.routing, hold=(0, 1)))
    reports = [workers.run(dataclasses.replace(order, written=written), w, keys, owner) for w in range(3)]
    assert reports[0].queues.lengths[0] == [0, 1]
    cache._caches.clear()
    reports = workers.epoch()
    assert not reports[0].queues.lengths[0]
    workers.check()


def _die_while_committing(task, tables, when):
    from impls.mechanisms.external.store import RedisStore

    commit = RedisStore.commit

    def deadly(self, txn):
        if when == "behind":
            commit(self, txn)
        os.kill(os.getpid(), signal.SIGKILL)

    RedisStore.commit = deadly
    run_epoch(task, tables)


def captured(workers, order, keys, owner):
    """Returns the records that worker 0 would be given."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("durable.run_epoch", lambda _task, tables: (tables, None))
        return workers.run(order, 0, keys, owner)


@pytest.mark.parametrize("when", ["before", "behind"])
def test_a_worker_killed_around_its_commit_is_replaced_and_nothing_is_lost(workers, when):
    workers.epoch()
    keys, owner = workers.batch(range(200))
    order = workers.order()
    tables = captured(workers, order, keys, owner)
    spawn = multiprocessing.get_context("spawn")
    process = spawn.Process(target=_die_while_committing, args=(Task(workers.spec, order, 0), tables, when))
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    reports = [workers.run(order, worker, keys, owner, attempt=1) for worker in range(3)]
    assert reports[0].repeated == (when == "behind")
    workers.epoch()
    workers.check()


def test_a_commit_whose_answer_was_lost_is_not_refused(workers, monkeypatch):
    """The client sends it again, and the script sees that it is there already."""
    from impls.mechanisms.external import store

    def twice(url, text):
        run = once(url, text)
        return (lambda **given: (run(**given), run(**given))[1]) if text == store.COMMIT else run

    once = store.script
    workers.epoch()
    monkeypatch.setattr(store, "script", twice)
    workers.epoch(moves(workers, 1))
    workers.check()


def test_what_a_query_stored_is_deleted_and_nothing_else(workers):
    workers.epoch()
    with redis.Redis.from_url(workers.shared.url) as client:
        client.set("other", 1)
        workers.shared.forget("q")
        assert client.keys() == [b"other"]


@pytest.mark.capability("hash")
@pytest.mark.spark
@pytest.mark.parametrize("workload", ["dense", "hash"])
def test_on_spark_the_output_is_right_across_moves_a_killed_store_and_a_restart(
    spark, kafka, topic_factory, tmp_path, workload
):
    with RedisServer(tmp_path / "redis") as running:
        run = Pipeline(
            spark, kafka, (topic_factory(2), topic_factory(4)), tmp_path / "run", "external-state", workload=workload,
            options={"redis": running.url, "cache_bytes": 100_000},
        )  # fmt: skip
        run.send(2000)
        query = run.start()
        run.await_applied()
        query.rescale(4)
        run.send(1000)
        assert query.await_migration(60), query.status()
        os.kill(running.pid, signal.SIGKILL)
        running.restart()
        run.send(1000)
        run.await_applied()
        run.stop()
        query = run.start()
        query.rescale(2)
        run.send(1000)
        assert query.await_migration(60), query.status()
        run.await_applied()
        run.stop()
        run.assert_valid(2)
    assert sum(line["moved_bins"] for line in run.epochs()) == 16
    assert sum(line["moved_bytes"] for line in run.epochs()) == 0
