"""The floor as an engine: one process of Python, of which no rescale makes more."""

import sys
from pathlib import Path

from harness.lab.engines.engine import Engine, EngineProcess, Job

_PROGRAM = Path(__file__).with_name("floor_count.py")


class FloorEngine(EngineProcess, Engine):
    """See `Engine`."""

    def __init__(self, _given: object, job: Job):
        super().__init__("The floor", job.folder / "floor.log")
        self._job = job

    def start(self, workers: int) -> None:
        """Starts the process, however many workers there are to be."""
        job = self._job
        self.run([sys.executable, "-P", _PROGRAM, job.bootstrap, job.group, job.results, *job.topics])

    def rescale(self, workers: int) -> None:
        """Does nothing: there is one process."""

    def kill_worker(self) -> int:
        """Kills the process and starts it again, which reads the input from its beginning."""
        return self.killed(lambda: self.start(1))

    def read_topics(self) -> tuple[str, ...]:
        """Returns the topics of the input."""
        return self._job.topics

    def pids(self) -> dict[str, int]:
        """Returns the id of the process."""
        return {} if self.pid is None else {"floor": self.pid}
