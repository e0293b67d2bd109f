"""A task of `./inv` in a process of its own, as a user runs it, for tests of what it leaves behind."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def result_of(
    task: str, output: Path, *options: str, deadline_s: float = 480, may_be_invalid: bool = False, **variables: str
) -> Path:
    """Runs a task that must succeed, and returns the folder of its result, which its last line names.

    With `may_be_invalid` exit code 1 is taken too: a run was judged invalid, which the caller looks at. `variables` go
    into its environment.
    """
    command = [sys.executable, "-P", "-m", "invoke", task, "--output", str(output), *options]
    environ = os.environ | variables
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, timeout=deadline_s, check=False)
    said = done.stdout.decode()
    assert done.returncode in ((0, 1) if may_be_invalid else (0,)), (
        f"exit code {done.returncode}: {said[-2000:]}{done.stderr.decode()[-2000:]}"
    )
    return Path(said.splitlines()[-1])
