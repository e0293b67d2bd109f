"""Spark's master or worker as the one program of a host that somebody else has made, such as a container."""

import os
from collections.abc import Sequence
from pathlib import Path
from re import Pattern

from harness import guard
from harness.lab.hosts import programs
from harness.lab.hosts.settings import Settings
from harness.lab.waiting import wait_for
from harness.setup.java import use_java
from impls.errors import UsageError

__all__ = ["SparkProgram", "spark_master", "spark_worker"]

_READY_DEADLINE_S = 60.0
_PASSED_ON = "AWS_"  # what an object store asks for, which executors have from their worker


class SparkProgram:
    """A master or worker: `start()`, then `stop()`; it ends with this process, however that ends.

    Its log is `spark.log` in its folder; a worker has its executors' logs in `work` there.
    """

    def __init__(self, folder: Path, host: str, command: Sequence[str], up: Pattern[str]):
        self._folder, self._host, self._command, self._up = folder, host, command, up
        self._process: guard.GuardedProcess | None = None

    @property
    def log(self) -> Path:
        """What the program says."""
        return self._folder / "spark.log"

    @property
    def running(self) -> bool:
        """Whether its process lives."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Returns when the program is up, a worker when the master has it; raises UsageError if not in 60 s."""
        for name in ("work", "local"):
            (self._folder / name).mkdir(parents=True, exist_ok=True)
        own = {name: value for name, value in os.environ.items() if name.startswith(_PASSED_ON)}
        env = own | programs.environment(self._host, self._folder, f"{self._folder}#{self._host}")
        with self.log.open("wb") as log:
            self._process = guard.spawn(self._command, stdout=log, stderr=log, env=env)
        try:
            wait_for(self._came_up, f"Spark's program at {self._host}", _READY_DEADLINE_S, error=UsageError)
        except UsageError:
            self.stop()
            raise

    def stop(self) -> None:
        """Ends the program and what it has started; its folder stays."""
        if self._process is not None:
            self._process.stop()
        self._process = None

    def _came_up(self) -> bool:
        said = self.log.read_text(errors="replace")
        if self._up.search(said):
            return True
        if not self.running:
            last = said.strip().splitlines()[-1:] or ["it said nothing"]
            raise UsageError(f"Spark's program at {self._host} did not come up: {last[0]}; its log is {self.log}.")
        return False


def spark_master(folder: Path, *, host: str, port: int) -> SparkProgram:
    """Returns a master that listens at a host's address and a port; raises UsageError where Java is missing."""
    return SparkProgram(folder, host, programs.master(use_java(), host, port), programs.MASTER_UP)


def spark_worker(folder: Path, host: str, size: Settings, *, master: str) -> SparkProgram:
    """Returns a worker at a host's address, of the cores and memory in `size`; raises UsageError where Java is missing.

    Args:
        folder: for its log, its executors' logs and their temporary files.
        host: address or name by which the master and other hosts reach this one.
        size: only its cores and its memory are used.
        master: spark://HOST:PORT.
    """
    command = programs.worker(use_java(), host, size, work=folder / "work", master=master)
    return SparkProgram(folder, host, command, programs.WORKER_UP)
