"""The measurement of the cost of being migratable, whole: a process, a broker, Spark, both sides in turns."""

import pytest

from harness.lab.measuring import measured_in_child
from harness.suites.perf.twin.process import TurnBlock, TwinSettings, ratios

pytestmark = pytest.mark.timeout(300)


def test_both_sides_take_turns_and_every_record_is_done_by_one(tmp_path):
    settings = TwinSettings(bins=16, pairs=4, block_s=2.0, keys=2000, rate=400, lead_in_s=3.0, backlog_pairs=12)
    found = measured_in_child("harness.suites.perf.twin.process", tmp_path, settings, deadline_s=240)
    blocks = [TurnBlock(**block) for block in found]
    for backlog in (False, True):
        own = [block for block in blocks if block.backlog == backlog]
        assert {block.side for block in own} == {"live", "twin"}
        assert len(ratios(own, "cpu_ms")) >= 1
        assert all(block.epochs >= 2 and block.records > 0 and block.cpu_ms > 0 for block in own)
        assert sum(block.records for block in own) < 400 * (3 + 3 * 16)  # on a busy machine the load goes on
    assert len(own) == 2 * settings.backlog_pairs == 24
    assert {block.records for block in own} == {2 * settings.epoch_records} == {2 * 80}
    assert not (tmp_path / "live").exists()
