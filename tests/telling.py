"""A run and epochs of it with known numbers, as the driver hands them over."""

import numpy as np

from harness.experiment.description import Run
from harness.experiment.make import make_experiment
from impls.driver.epochs import EpochRecord
from impls.protocol.plan import EpochPlan, WrittenPlan
from impls.protocol.report import MovesReport, Report
from impls.worker.cells import make_cells

RUN = Run(make_experiment(mechanism="megaphone-batched", bins="8", workers="2"), "megaphone-batched", 0, 3)
BEGIN_US = 1_767_225_600_000_000


def epoch_record(epoch, latencies_ms):
    """Returns an epoch in which worker 0 pulled two bins of 512 bytes and did one record for each latency."""
    done_us = BEGIN_US + 200_000
    cells, _ = make_cells(done_us - (np.asarray(latencies_ms) * 1000).astype(np.int64), done_us, np.zeros(1, bool))
    inside = {"open": 1.0, "pull": 5.0, "apply": 40.0}
    report = Report(0, records=len(latencies_ms), moves=MovesReport([1, 2], bytes=1024), done_us=done_us, ms=inside)
    return EpochRecord(
        written=WrittenPlan(epoch, 0, 2, EpochPlan(np.zeros(8, np.int32)), migrating=True),
        begin_us=BEGIN_US, end_us=BEGIN_US + 210_000, reports=[report, Report(1)],
        cells={0: cells, 1: cells[:0]}, ms={"between": 4.0, "plan": 1.0, "build": 6.0, "job": 190.0, "observe": 9.0},
        misplaced=6, durable_bytes=0, events=[], state_bytes=4096,
    )  # fmt: skip
