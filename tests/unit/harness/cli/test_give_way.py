"""A reader of state has the CPU behind others, and beside a query what that leaves."""

import os
import subprocess
import sys

import pytest

_PROGRAM = (
    "import os, sys; from harness.cli.look import give_way; give_way(sys.argv[1]); print(os.sched_getscheduler(0))"
)


@pytest.mark.parametrize("runs", [False, True])
def test_only_beside_a_query_a_reader_takes_what_is_left(tmp_path, runs):
    if runs:
        (tmp_path / "rescale").mkdir()
        (tmp_path / "rescale" / "control.json").write_text("{}")
    found = subprocess.run([sys.executable, "-c", _PROGRAM, str(tmp_path)], capture_output=True, text=True, check=True)
    assert int(found.stdout) == (os.SCHED_IDLE if runs else os.sched_getscheduler(0))
