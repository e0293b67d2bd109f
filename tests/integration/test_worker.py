"""The worker core without Spark: which epochs it accepts, what a repeated attempt does, pulls, budgets and queues."""

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pytest

from impls.errors import StateError
from impls.operators import DenseCount, HashCount
from impls.protocol.order import EpochOrder
from impls.protocol.plan import EpochPlan, Pull, WrittenPlan
from impls.protocol.report import Report
from impls.store.entries import BLOCK_BYTES, SLOTS
from impls.worker.attempts import run_epoch
from impls.worker.output import Output
from impls.worker.query import QuerySpec, Task

BINS = 4


def batch(first_offset: int, bins: list[int]) -> pa.Table:
    """Records of keys 1000 + bin, in offset order."""
    n = len(bins)
    return pa.table(
        {
            "bin": pa.array(bins, pa.int32()),
            "partition": pa.array([0] * n, pa.int32()),
            "offset": pa.array(range(first_offset, first_offset + n), pa.int64()),
            "time": pa.array([0] * n, pa.int64()),
            "key": pa.array([1000 + b for b in bins], pa.int64()),
        }
    )


@dataclass
class Workers:
    """Two workers and the epochs they run; bins 0 and 1 begin at worker 0, 2 and 3 at worker 1."""

    output: Output
    state_dir: str

    def order(self, epoch: int, routing: list[int], **more) -> EpochOrder:
        drops, generation = more.pop("drops", ()), more.pop("generation", 1)
        step = {name: more.pop(name) for name in ("elsewhere", "fresh", "sizes", "queued") if name in more}
        plan = EpochPlan(np.array(routing, np.int32), **more)
        written = WrittenPlan(epoch, generation, 2, plan, drops)
        step |= {"first": epoch == 0, "generation": generation}
        return EpochOrder(written, **step)

    @property
    def spec(self) -> QuerySpec:
        return QuerySpec("q", BINS, HashCount(), self.output, self.state_dir)

    def run(self, worker: int, order: EpochOrder, bins: tuple[int, ...] = (), attempt: int = 0) -> Report:
        tables = [batch(order.written.epoch * 100, list(bins))] if bins else []
        return run_epoch(Task(self.spec, order, worker, attempt), tables)[0]

    def start(self) -> None:
        for worker in (0, 1):
            self.run(worker, self.order(0, [0, 0, 1, 1]))


@pytest.fixture
def workers(kafka, topic_factory, tmp_path):
    made = Workers(Output(kafka, topic_factory(2), 2), str(tmp_path / "state"))
    made.start()
    return made


def test_a_second_attempt_of_a_committed_epoch_sends_again_and_changes_nothing(workers, results_of):
    order = workers.order(1, [0, 0, 1, 1])
    first = workers.run(0, order, (0, 1, 0))
    second = workers.run(0, order, (0, 1, 0), attempt=1)
    assert (first.repeated, second.repeated) == (False, True)
    assert (first.records, first.results) == (second.records, second.results) == (3, 2)
    later = workers.run(0, workers.order(2, [0, 0, 1, 1]), (0,))
    assert later.records == 1
    values = results_of(workers.output.topic).wait_for(3, "the results, repeats removed")
    assert sorted(int.from_bytes(v, "little") for v in values) == [1, 2, 3]


@pytest.mark.parametrize(("epoch", "says"), [(0, "outdated"), (3, "needs its state of epoch 2")])
def test_an_epoch_that_does_not_follow_is_refused_and_nothing_is_touched(workers, epoch, says):
    workers.run(0, workers.order(1, [0, 0, 1, 1]), (0,))
    order = workers.order(epoch, [0, 0, 1, 1])
    with pytest.raises(StateError, match=says):
        workers.run(0, replace(order, first=False), (0,))
    assert workers.run(0, workers.order(2, [0, 0, 1, 1]), (0,)).records == 1


def test_a_driver_of_an_older_generation_is_refused(workers):
    workers.run(0, workers.order(1, [0, 0, 1, 1], generation=2))
    with pytest.raises(StateError, match="outdated"):
        workers.run(0, workers.order(2, [0, 0, 1, 1], generation=1))


def test_a_pulled_bin_goes_on_counting_at_its_new_owner_and_is_dropped_at_the_old(workers, results_of):
    for worker in (0, 1):
        workers.run(worker, workers.order(1, [0, 0, 1, 1]), (1, 1) if worker == 0 else ())
    move = workers.order(2, [0, 1, 1, 1], pulls=(Pull(1, 0, 1),), elsewhere=((1, 0),))
    assert workers.run(1, move, (1,)).moves.bins == [1]
    workers.run(0, move)
    after = workers.order(3, [0, 1, 1, 1], drops=((1, 0),))
    workers.run(0, after)
    workers.run(1, after, (1,))
    values = results_of(workers.output.topic).wait_for(3, "the counts of bin 1")
    assert [int.from_bytes(v, "little") for v in values] == [2, 3, 4]


def test_a_source_that_is_not_at_the_epoch_is_refused(workers):
    for epoch in (1, 2):
        workers.run(1, workers.order(epoch, [0, 0, 1, 1]))
    with pytest.raises(StateError, match="Worker 0 is to hand over bins in epoch 3"):
        workers.run(1, workers.order(3, [0, 1, 1, 1], pulls=(Pull(1, 0, 1),), elsewhere=((1, 0),)))


def test_on_demand_pulls_what_is_needed_first_and_queues_what_does_not_fit(workers, results_of):
    for worker in (0, 1):
        workers.run(worker, workers.order(1, [0, 0, 1, 1]), (0, 1) if worker == 0 else ())
    pulls = (Pull(0, 0, 1), Pull(1, 0, 1))
    routing = [1, 1, 1, 1]
    told = {"elsewhere": ((0, 0), (1, 0)), "sizes": ((0, 12), (1, 12))}
    first = workers.order(2, routing, pulls=pulls, on_demand=True, budget_bytes=0, **told)
    report = workers.run(1, first, (1, 0, 1, 2))
    workers.run(0, first)
    assert report.moves.bins == [1], "bin 1 is wanted twice, bin 0 once"
    assert report.queues.lengths == ([0], [1])
    assert report.records == 3
    told = {"elsewhere": ((0, 0),), "sizes": ((0, 12),), "queued": ((0, 1),)}
    second = workers.order(3, routing, pulls=(Pull(0, 0, 1),), on_demand=True, budget_bytes=0, **told)
    report = workers.run(1, second, (0,))
    workers.run(0, second)
    assert (report.moves.bins, report.records) == ([0], 2)
    assert not report.queues.lengths[0]
    values = results_of(workers.output.topic).wait_for(5, "all counts")
    assert sorted(int.from_bytes(v, "little") for v in values) == [1, 1, 1, 3, 3]


def test_a_held_bin_queues_its_records(workers):
    for worker in (0, 1):
        workers.run(worker, workers.order(1, [0, 0, 1, 1]))
    held = workers.run(0, workers.order(2, [0, 0, 1, 1], hold=(0,)), (0, 1, 0))
    assert (held.records, held.queues.lengths[1]) == (1, [2])
    freed = workers.run(0, workers.order(3, [0, 0, 1, 1], queued=((0, 2),)), (0,))
    assert (freed.records, freed.queues.lengths[0]) == (3, [])


def test_a_worker_that_comes_back_starts_empty(workers):
    workers.run(0, workers.order(1, [0, 0, 1, 1]), (0,))
    late = workers.order(5, [0, 0, 0, 0], fresh=(1,))
    assert workers.run(1, late).records == 0
    assert workers.run(1, workers.order(6, [0, 0, 0, 0], fresh=(1,))).records == 0


def test_the_map_grows_when_the_state_does(workers, monkeypatch, tmp_path):
    monkeypatch.setattr("impls.worker.held.MAP_BYTES", 1 << 20)
    big = DenseCount(keys=SLOTS * 400 * BINS)
    spec = replace(workers.spec, operator=big, state_dir=str(tmp_path / "big"))
    report = run_epoch(Task(spec, workers.order(0, [0, 0, 0, 0]), 0), [])[0]
    assert sum(report.sizes[1]) == BLOCK_BYTES * 400 * BINS
