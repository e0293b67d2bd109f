"""The measurement of the cost of being migratable, whole: a process, a broker, Spark, both sides in turns."""

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from harness.files import write_json
from harness.lab.measuring import ASKED, FOUND
from harness.suites.perf.twin.process import TurnBlock, TwinSettings, ratios

pytestmark = pytest.mark.timeout(300)
ROOT = Path(__file__).parents[2]


def test_both_sides_take_turns_and_every_record_is_done_by_one(tmp_path):
    settings = TwinSettings(bins=16, pairs=4, block_s=2.0, keys=2000, rate=400, lead_in_s=3.0, backlog_pairs=12)
    write_json(tmp_path / ASKED, asdict(settings))
    command = [sys.executable, "-m", "harness.suites.perf.twin.process", str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        said = process.stdout.read()
        assert process.wait(240) == 0, said
    blocks = [TurnBlock(**block) for block in json.loads((tmp_path / FOUND).read_text())]
    for backlog in (False, True):
        own = [block for block in blocks if block.backlog == backlog]
        assert {block.side for block in own} == {"live", "twin"}
        assert len(ratios(own, "cpu_ms")) >= 1
        assert all(block.epochs >= 2 and block.records > 0 and block.cpu_ms > 0 for block in own)
        assert sum(block.records for block in own) < 400 * (3 + 3 * 16)  # on a busy machine the load goes on
    assert len(own) == 2 * settings.backlog_pairs == 24
    assert {block.records for block in own} == {2 * settings.epoch_records} == {2 * 80}
    assert not (tmp_path / "live").exists()
