"""The comparison of a processor on both sides: how throughput and ratios come about, and what a wrong count is."""

import pytest

from harness.suites.perf.processor.process import ProcessorSettings, RoundResult, check_counts, findings
from impls.errors import StateError

SETTINGS = ProcessorSettings(keys=10, rounds=2, epochs=2, epoch_records=5, rate=1, seconds=1.0)


def test_ratios_are_those_of_blocks_of_one_round():
    blocks = [
        RoundResult("live", 0, 3_000.0, 10.0, 20.0, 9), RoundResult("Spark", 0, 1_000.0, 30.0, 80.0, 9),
        RoundResult("Spark", 1, 2_000.0, 30.0, 40.0, 9), RoundResult("live", 1, 8_000.0, 10.0, 20.0, 9),
    ]  # fmt: skip
    throughput, latency = findings(blocks, SETTINGS).checks
    assert (throughput.value, throughput.holds) == (3.5, True)
    assert (latency.value, latency.holds) == (0.375, True)


def test_counts_go_on_one_by_one_behind_the_first():
    check_counts("out", {1: [3, 2, 4], 2: []})
    for wrong in ([2, 2], [3], [1], [2, 4]):
        with pytest.raises(StateError, match="key 7"):
            check_counts("out", {7: wrong})
