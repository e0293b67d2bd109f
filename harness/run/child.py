"""A run's process as its parent sees it: spawn, go, lines, end."""

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.files import ROOT

__all__ = ["RunProcess"]

_END_DEADLINE_S = 60.0


class RunProcess:
    """Starts broker and Spark of a run's folder at once, runs the run after go(), and ends with end().

    The process watches its standard input: it starts the load on `go`, and stops cleanly when the parent is gone.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self._log = (folder / "run.log").open("ab")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "harness.run.process", str(folder)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, cwd=ROOT, start_new_session=True,
        )  # fmt: skip
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout

    def go(self) -> None:
        """Lets the run begin; one that has died already is seen by `lines` ending."""
        with contextlib.suppress(BrokenPipeError):
            self._stdin.write(b"go\n")
            self._stdin.flush()

    def lines(self) -> Iterator[dict[str, Any]]:
        """Yields what the run tells until it ends; a library's own words on standard output are passed over."""
        for raw in self._stdout:
            try:
                line = json.loads(raw)
            except ValueError:
                continue
            if isinstance(line, dict):
                yield line

    def wait(self) -> int:
        """Returns the exit code of a run that is ending; one that does not end in a minute is killed."""
        try:
            return self._process.wait(_END_DEADLINE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait(_END_DEADLINE_S)

    def end(self) -> None:
        """Asks the run to end by closing its standard input, and waits until it has."""
        with contextlib.suppress(BrokenPipeError):
            self._stdin.close()
        end = time.monotonic() + _END_DEADLINE_S
        while self._process.poll() is None and time.monotonic() < end:
            time.sleep(0.05)
        self.wait()
        self._stdout.close()
        self._log.close()
