"""What a driver that starts knows of snapshots and changelog, and what it deletes."""

import numpy as np
import pytest

from impls import catalog
from impls.driver.checkpoint import Checkpoint
from impls.driver.driver import Driver
from impls.durability.files import Files
from impls.protocol.controller import Controller
from impls.protocol.order import Answers
from impls.protocol.report import Report, Written
from impls.worker.cells import CELL

BINS, WORKERS, BIN_BYTES = 64, 4, 4 << 20
EVERY = list(range(BINS))


class Reporting:
    """An executor whose workers change every bin in each epoch, and say that they write the snapshots asked for."""

    hosts = ()

    def __init__(self):
        self.snapshots = []

    def run(self, order, _batch):
        self.snapshots.append(len(order.snapshot))
        rows = []
        for worker in range(WORKERS):
            mine = [bin_ for bin_ in EVERY if order.written.plan.routing[bin_] == worker]
            report = Report(worker, changelog=Written(mine, 1000), sizes=(mine, [BIN_BYTES] * len(mine)))
            if due := sorted({*mine} & {*order.snapshot}):
                report.snapshot = Written(due, BIN_BYTES * len(due))
            rows.append((report, np.empty(0, CELL)))
        return Answers.of(rows, build_ms=0.0, job_ms=0.0)


@pytest.fixture
def start(tmp_path):
    """Starts a driver on the same checkpoint, in place of the one before."""
    opened = []

    def begin():
        for before in opened:
            before.close()
        opened.append(Checkpoint(tmp_path, {}))
        controller = Controller((np.arange(BINS) % WORKERS).astype(np.int32), catalog.make("megaphone-fluid"))
        executor, files = Reporting(), Files(str(tmp_path / "durable"))
        return Driver(controller, opened[-1], executor, files=files, replay_epochs=20), executor

    yield begin
    for before in opened:
        before.close()


def test_a_driver_that_starts_asks_for_no_more_snapshots_than_the_one_before(start):
    driver, executor = start()
    for epoch in range(600):
        driver.run_epoch(None, epoch)
    steady = max(executor.snapshots[300:])
    assert steady == 1
    for first in (600, 603):
        driver, executor = start()
        for epoch in range(first, first + 3):
            driver.run_epoch(None, epoch)
        assert max(executor.snapshots) <= steady + 1


def test_what_killed_writers_have_left_is_deleted_and_counted_at_a_start(start, tmp_path):
    driver, _ = start()
    driver.run_epoch(None, 0)
    durable = tmp_path / "durable"
    for name in (".0000000001-00000.4711-0", ".0000000001-00000-1.4711-12"):
        for folder in ("log", "snapshots"):
            (durable / folder / name).write_bytes(bytes(1000))
    (durable / "log" / ".nfs0001").write_bytes(b"not ours")
    (durable / "log" / "0000000000-00000").write_bytes(b"a frame")
    driver, _ = start()
    assert sorted(path.name for path in durable.glob("*/*")) == [".nfs0001", "0000000000-00000"]
    assert driver.swept_bytes == 4000
