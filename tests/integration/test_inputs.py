"""Several topics, rows of one record, nulls, a topic made anew, a second query: exact counts on Spark with Kafka."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
DEADLINE_S = 280


@pytest.mark.lengthy
@pytest.mark.parametrize("mode", ["micro-batch", "real-time"])
def test_each_row_counts_once_whatever_topic_and_record_it_is_of(kafka, tmp_path, mode):
    command = [sys.executable, TESTS / "inputs.py", mode, kafka, tmp_path]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=DEADLINE_S, check=False, cwd=TESTS.parent,
        env={**os.environ, "PYTHONPATH": str(TESTS.parent)},
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-3000:]}"
