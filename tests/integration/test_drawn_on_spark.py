"""A group of drawn processors on Spark; `python tests/drawn_on_spark.py` runs all of them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from drawn_on_spark import MODES, case_of

SCRIPT = Path(__file__).parents[1] / "drawn_on_spark.py"


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_frames_with_timers_give_what_sparks_own_operator_gives_in_both_modes():
    group = 4
    case = case_of(group, real_time=False)
    assert (case.time, case.pandas) == (MODES[1], True)
    command = [sys.executable, str(SCRIPT), "--groups", str(group)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=380)
    said = [json.loads(line) for line in done.stdout.splitlines()]
    assert said == [{"group": group, "differs": 0, "first": []}], done.stderr[-2000:]
    assert done.returncode == 0
