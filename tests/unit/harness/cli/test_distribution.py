"""How tests are given to processes: a file's to one of them, those of the Spark session to one, what is long first."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]


TELLING = """
import os, time
import pytest
@pytest.mark.parametrize("n", range(4))
def test_it(n, pytestconfig, request):
    time.sleep(0.05)
    limit = request.node.get_closest_marker("timeout")
    words = (pytestconfig.workerinput["workerid"], str(os.nice(0)), str(limit.args[0] if limit else 300), __file__)
    with open(os.environ["TOLD"], "a") as out:
        out.write(" ".join(words) + chr(10))
"""


@pytest.mark.lengthy
@pytest.mark.parametrize("folders", [("integration", "unit"), ("integration",)], ids="+".join)
def test_the_last_of_three_processes_computes_at_a_low_priority_and_starts_no_spark(tmp_path, folders):
    files = [tmp_path / "tests" / folder / f"test_{folder}_{n}.py" for folder in folders for n in range(6)]
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(TELLING)
    shutil.copy(ROOT / "tests" / "conftest.py", tmp_path / "tests")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    told = tmp_path / "told"
    environ = os.environ | {"TOLD": str(told), "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
    options = ["-q", "-p", "no:cacheprovider", "-n", "3", "--no-loadscope-reorder"]
    command = [sys.executable, "-m", "pytest", *options, "tests"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environ, timeout=120, check=False)
    assert done.returncode == 0, done.stdout
    lines = [line.split() for line in told.read_text().splitlines()]
    assert len(lines) == 4 * len(files)
    processes = {(file, process) for process, *_, file in lines}
    assert len(processes) == len(files), "the tests of a file run in one process"
    own = os.nice(0)
    last = {(int(nice) > own, float(limit), Path(file).parent.name) for p, nice, limit, file in lines if p == "gw2"}
    assert last == ({(True, 1200, "unit")} if "unit" in folders else {(False, 300, "integration")})
    assert {(int(nice), float(limit)) for p, nice, limit, _ in lines if p != "gw2"} == {(own, 300)}


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
    assert {name.partition("::")[0] for name in fast} == {name.partition("::")[0] for name in everything}
    assert set(fast) < set(everything)
    assert len(fast) < len(everything) * 2 / 3
