"""What a driver that starts knows of snapshots and changelog, and what it deletes."""

import json

import numpy as np
import pytest

from impls import catalog
from impls.driver.checkpoint import Checkpoint
from impls.driver.driver import Driver
from impls.durability.files import Files
from impls.durability.schedule import read_manifest
from impls.protocol.controller import Controller
from impls.protocol.order import Answers
from impls.protocol.report import Report, Written
from impls.worker.cells import CELL

BINS, WORKERS, BIN_BYTES, REPLAY = 64, 4, 4 << 20, 20
EVERY = list(range(BINS))


class Reporting:
    """An executor whose workers change every bin in each epoch, and say that they write the snapshots asked for."""

    servers = ()

    def __init__(self, bin_bytes):
        self.snapshots, self.bin_bytes = [], bin_bytes

    def run(self, order, _batch):
        self.snapshots.append(len(order.snapshot))
        rows = []
        for worker in range(WORKERS):
            mine = [bin_ for bin_ in EVERY if order.written.plan.routing[bin_] == worker]
            report = Report(worker, changelog=Written(mine, 1000), sizes=(mine, [self.bin_bytes] * len(mine)))
            if due := sorted({*mine} & {*order.snapshot}):
                report.snapshot = Written(due, self.bin_bytes * len(due))
            rows.append((report, np.empty(0, CELL)))
        return Answers.of(rows, build_ms=0.0, job_ms=0.0)


@pytest.fixture
def start(tmp_path):
    """Starts a driver on the same checkpoint, in place of the one before."""
    opened = []

    def begin(bin_bytes=BIN_BYTES):
        for before in opened:
            before.close()
        opened.append(Checkpoint(tmp_path, {}))
        controller = Controller((np.arange(BINS) % WORKERS).astype(np.int32), catalog.make("megaphone-fluid"))
        executor, files = Reporting(bin_bytes), Files(str(tmp_path / "durable"))
        return Driver(controller, opened[-1], executor, files=files, replay_epochs=REPLAY), executor

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


def base_of(tmp_path):
    """For each bin, the epoch from whose end a recovery begins."""
    query = json.loads((tmp_path / "durable" / "manifest.json").read_text())["query"]
    return read_manifest(Files(str(tmp_path / "durable")), query, BINS).base


@pytest.mark.parametrize("epochs", [1, 3])
@pytest.mark.parametrize("again", [False, True])
def test_drivers_that_end_soon_make_snapshots_that_recovery_begins_with(start, tmp_path, epochs, again):
    first, frames = 0, tmp_path / "durable" / "log"
    while first < 8 * REPLAY:
        driver, _ = start(bin_bytes=1000)
        for epoch in range(first - (again and first > 0), first + epochs):  # Spark runs again what it has not committed
            driver.run_epoch(None, epoch)
            for worker in range(WORKERS):
                (frames / f"{epoch:010d}-{worker:05d}").touch()
            assert base_of(tmp_path).max() < epoch
        first += epochs
        if first > 5 * REPLAY:
            assert base_of(tmp_path).min() >= first - 2 * REPLAY
            assert len(list(frames.iterdir())) <= 3 * REPLAY * WORKERS


def test_what_killed_writers_have_left_is_deleted_at_a_start(start, tmp_path, caplog):
    driver, _ = start()
    driver.run_epoch(None, 0)
    durable = tmp_path / "durable"
    for name in (".0000000001-00000.4711-0", ".0000000001-00000-1.4711-12"):
        for folder in ("log", "snapshots"):
            (durable / folder / name).write_bytes(bytes(1000))
    (durable / "log" / ".nfs0001").write_bytes(b"not ours")
    (durable / "log" / "0000000000-00000").write_bytes(b"a frame")
    with caplog.at_level("INFO", "impls.driver"):
        start()
    assert sorted(path.name for path in durable.glob("*/*")) == [".nfs0001", "0000000000-00000"]
    assert "4000 bytes of files that killed workers had left half-written are deleted." in caplog.text
