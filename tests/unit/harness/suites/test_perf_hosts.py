"""What the performance suite makes of a cluster: the cost of a lost host, and the speed of pulls between hosts."""

import numpy as np
import pytest

from harness.suites.perf.hosts import LossSettings, _pull_mb_s, judged
from impls.driver.epochs import EpochRecord
from impls.protocol.plan import EpochPlan, WrittenPlan
from impls.protocol.report import Report

SECOND = 1_000_000
ASKED = LossSettings("host", 7, 100, 30.0)


def _epochs(*given):
    """Returns epochs one after another from second 0: (seconds, rebuilt in ms) of each."""
    found, at = [], 0
    for number, (seconds, rebuilt_ms) in enumerate(given):
        report = Report(0, recovered="lost" if rebuilt_ms else "", ms={"recover": rebuilt_ms} if rebuilt_ms else {})
        written = WrittenPlan(number, 1, 1, EpochPlan(np.zeros(2, np.int32)))
        end = at + round(seconds * SECOND)
        found.append(EpochRecord(written, at, end, [Report(1), report], {}, {}, 0, 0, state_bytes=100 + number))
        at = end
    return found


def test_a_loss_lasts_until_three_epochs_in_a_row_are_as_before():
    usual = [(0.5, 0)] * 20
    epochs = _epochs(*usual, (4.0, 900.0), (0.6, 300.0), (0.9, 0), (1.2, 0), *[(0.8, 0)] * 4)
    one = judged(epochs, ASKED, begin_us=0, lost_us=10 * SECOND)
    assert (one.what, one.keys, one.state_bytes) == ("host", 7, 119)
    assert one.recover_ms == 900.0
    assert one.gap_s == pytest.approx(4.0)
    assert one.steady_s == pytest.approx(4.0 + 0.6 + 0.9 + 1.2)


def test_an_epoch_in_which_the_loss_happens_counts_from_there():
    epochs = _epochs(*[(0.5, 0)] * 10, (3.0, 50.0), *[(0.5, 0)] * 3)
    one = judged(epochs, ASKED, begin_us=0, lost_us=7 * SECOND)
    assert one.gap_s == pytest.approx(1.0)
    assert one.steady_s == pytest.approx(1.0)


def test_epochs_of_a_cold_start_are_no_measure():
    epochs = _epochs((3.0, 0), *[(0.5, 0)] * 30, (2.0, 50.0), *[(0.9, 0)] * 3)
    assert judged(epochs, ASKED, begin_us=0, lost_us=18 * SECOND).steady_s == pytest.approx(2.0)


def test_a_query_that_is_not_steady_again_has_no_such_time():
    epochs = _epochs(*[(0.5, 0)] * 20, (2.0, 50.0), *[(3.0, 0)] * 5)
    assert judged(epochs, ASKED, begin_us=0, lost_us=10 * SECOND).steady_s is None


def test_the_speed_of_pulls_is_that_of_all_pulls_together():
    network = [
        {"between": "a > b", "bytes": 3_000_000, "ms": 20.0},
        {"between": "b > a", "bytes": 1_000_000, "ms": 5.0},
    ]
    assert _pull_mb_s({"hosts": {"network": network}}) == pytest.approx(4.0 / 0.025)
    assert _pull_mb_s({"hosts": {"network": []}}) == 0.0
