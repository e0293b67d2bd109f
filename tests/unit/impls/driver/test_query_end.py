"""The handle of a query without Spark: how it ends, whatever fails on the way."""

import numpy as np
import pytest

from impls import catalog
from impls.driver.checkpoint import Checkpoint
from impls.driver.driver import Driver, QueryEnded
from impls.driver.handle import StreamHandle
from impls.driver.pipeline import PipelineChanges
from impls.errors import StateError
from impls.operators import HashCount
from impls.placement import initial
from impls.protocol.controller import Controller
from impls.protocol.order import Answers
from impls.protocol.report import Moves, Report
from impls.spark.shipping import pickled
from impls.worker.cells import CELL


class Idle:
    """An executor whose workers have nothing to do."""

    hosts = ()

    def run(self, order, _batch):
        pulls = [
            [pull.bin for pull in order.written.plan.pulls if pull.target == w] for w in range(order.written.workers)
        ]
        reports = [Report(worker, moves=Moves(bins)) for worker, bins in enumerate(pulls)]
        return Answers.of([(report, np.empty(0, CELL)) for report in reports], build_ms=0.0, job_ms=0.0)


def handle(folder, run, *, bins=256, policy="minimal_move", **more):
    opened = Checkpoint(folder, {})
    controller = Controller(initial(bins, 1, policy), catalog.make("megaphone-fluid"))
    driver = Driver(controller, opened, Idle(), files=None)
    changes = PipelineChanges(driver, HashCount(), pickled, ())
    return StreamHandle(run, changes, opened, policy, None, **more)


def ends(_epoch_of, started):
    started()
    return QueryEnded()


def fails():
    raise OSError("the socket is gone")


def test_what_cannot_be_freed_at_the_end_is_the_failure_and_the_rest_is_freed(tmp_path):
    query = handle(tmp_path, ends, end=fails)
    with pytest.raises(OSError, match="the socket is gone"):
        query.await_end(20)
    Checkpoint(tmp_path, {}).close()  # nobody holds it


def test_what_a_query_failed_with_comes_before_what_its_end_fails_with(tmp_path):
    def broken(_epoch_of, _started):
        raise StateError("The disk is full.")

    query = handle(tmp_path, broken, end=fails)
    with pytest.raises(StateError, match="The disk is full"):
        query.await_end(20)


def test_a_rescale_to_workers_of_which_some_get_no_bin_moves_bins_once(tmp_path):
    def waits(epoch_of, started):
        started()
        epoch = 0
        try:
            while True:
                epoch_of(None, epoch)
                epoch += 1
        except QueryEnded as ended:
            return ended

    with handle(tmp_path, waits, policy="consistent_hashing") as query:
        assert query.moves(52)
        query.rescale(52)
        assert len(np.unique(query.goal)) == 51
        assert not query.moves(52)
        assert query.moves(51)
