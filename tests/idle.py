"""An executor for tests of the driver's side, whose workers have nothing to do."""

import numpy as np

from impls.protocol.order import Answers
from impls.protocol.report import MovesReport, Report
from impls.worker.cells import CELL


class Idle:
    """Reports each pull of a plan as done, and no record."""

    servers = ()

    def run(self, order, _batch):
        pulls = [
            [pull.bin for pull in order.written.plan.pulls if pull.target == w] for w in range(order.written.workers)
        ]
        reports = [Report(worker, moves=MovesReport(bins)) for worker, bins in enumerate(pulls)]
        return Answers.of([(report, np.empty(0, CELL)) for report in reports], build_ms=0.0, job_ms=0.0)
