"""How tests are given to processes: a file's to one of them, those of the Spark session to one, what is long first."""

import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]


@pytest.mark.lengthy
def test_the_tests_of_a_file_run_in_one_process():
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "-n", "2", "tests/unit/impls/placement"]
    told = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=120, check=False)
    assert told.returncode == 0, told.stdout
    processes = defaultdict(set)
    for process, file in re.findall(r"\[(gw\d)\].* PASSED (\S+)::", told.stdout):
        processes[file].add(process)
    assert len(processes) >= 3
    assert all(len(found) == 1 for found in processes.values()), dict(processes)
    assert len(set.union(*processes.values())) == 2


@pytest.mark.lengthy
def test_a_fast_run_has_every_file_but_neither_lengthy_tests_nor_every_sampled_case():
    def collected(*more):
        command = [
            sys.executable,
            "-m",
            "pytest",
            "--collect-only",
            "-q",
            "-p",
            "no:cacheprovider",
            *more,
            "tests/simulation",
        ]
        told = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=120, check=False)
        return [line for line in told.stdout.splitlines() if "::" in line]

    everything, fast = collected(), collected("--fast")
    assert len(everything) > 800
    assert {name.partition("[")[0] for name in fast} == {name.partition("[")[0] for name in everything}
    assert set(fast) < set(everything)
    assert len(fast) < len(everything) * 2 / 3
