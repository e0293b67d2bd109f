"""The floor as an engine: one process of Python, of which no rescale makes more."""

import os
import signal
import sys
import threading
from pathlib import Path

from harness import guard
from harness.lab.engines.engine import Engine, Job
from impls.errors import StateError, UsageError

_PROGRAM = Path(__file__).with_name("floor_count.py")


class FloorEngine(guard.GuardedProgram, Engine):
    """See `Engine`."""

    def __init__(self, _given: object, job: Job):
        guard.GuardedProgram.__init__(self, job.folder, "floor.log")
        self.name, self._job = "The floor", job
        self._lock = threading.RLock()  # whoever looks at a process that is being replaced waits

    def start(self, workers: int) -> None:
        """Starts the process, however many workers there are to be."""
        job = self._job
        command: list[str | Path] = [sys.executable, "-P", _PROGRAM, job.bootstrap, job.group, job.results]
        command += job.topics
        try:
            job.folder.mkdir(parents=True, exist_ok=True)
            with self.log.open("ab") as log:
                self._process = guard.spawn(command, stdout=log, stderr=log)
        except OSError as error:
            raise UsageError(f"{self.name} cannot be started: {error}.") from error

    def rescale(self, workers: int) -> None:
        """Does nothing: there is one process."""

    def kill_worker(self) -> int:
        """Kills the process and starts it again, which reads the input from its beginning."""
        with self._lock:
            assert self._process is not None, "start() comes first"
            killed = self._process.pid
            os.kill(killed, signal.SIGKILL)
            self._process.stop()  # which also closes what leads to its guard
            self.start(1)
            return killed

    def check(self) -> None:
        """Raises StateError when the process has ended."""
        with self._lock:
            ended = not self.running
        if ended:
            raise StateError(f"{self.name} has ended: {self.last_words()}; its log is {self.log}.")

    def read_topics(self) -> tuple[str, ...]:
        """Returns the topics of the input."""
        return self._job.topics

    def pids(self) -> dict[str, int]:
        """Returns the id of the process."""
        return {} if self.pid is None else {"floor": self.pid}
