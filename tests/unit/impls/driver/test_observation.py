"""What the driver takes from the reports of an epoch in which workers have run timers up to different times."""

import numpy as np
import pytest

from impls.driver.epochs import observation_of
from impls.protocol.plan import EpochPlan, WrittenPlan
from impls.protocol.report import EventTimes, Report

WRITTEN = WrittenPlan(3, 1, 3, EpochPlan(np.array([0, 1, 2, 0], np.int32)), watermark=50)


@pytest.mark.parametrize(
    ("untils", "until", "waits"),
    [
        ((None, None, None), None, (2,)),
        ((70, 70, 70), 70, (2,)),
        ((70, None, 60), 70, (1, 2)),
        ((None, 70, 70), 70, (0, 2, 3)),
    ],
)
def test_the_bins_of_workers_that_were_told_less_wait(untils, until, waits):
    """Each worker's timers ran up to one of these times, and bin 2 waits anyhow."""
    reports = [
        Report(worker, event_time=EventTimes(waits=[2] if worker == 2 else [], until=one))
        for worker, one in enumerate(untils)
    ]
    seen = observation_of(WRITTEN, reports, 1.0, 1.0)
    assert (seen.epoch, seen.until, seen.waits) == (3, until, waits)
