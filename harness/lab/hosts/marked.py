"""The processes of a host, known by the mark that all of them have in their environment."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil

from harness.lab.hosts.programs import HOST_VARIABLE

__all__ = ["executors_of", "processes_of", "worker_of"]

_EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
_WORKER = "org.apache.spark.deploy.worker.Worker"


def processes_of(folder: Path, number: int | None = None) -> list[psutil.Process]:
    """Returns the processes of a host of the cluster in a folder, those of all its hosts and its master without one.

    Those whose environment cannot be read, as they are ending or somebody else's, are none of them.
    """
    wanted = f"{folder}#{'' if number is None else number}"
    return [process for process, mark in _marks() if (mark.startswith(wanted) if number is None else mark == wanted)]


def executors_of(folder: Path, number: int) -> list[int]:
    """Returns the process ids of the executors on a host."""
    return sorted(process.pid for process in processes_of(folder, number) if _runs(process, _EXECUTOR))


def worker_of(folder: Path, number: int) -> int | None:
    """Returns the process id of the host's Spark worker, None where there is none."""
    return next((process.pid for process in processes_of(folder, number) if _runs(process, _WORKER)), None)


def _marks() -> Iterator[tuple[psutil.Process, str]]:
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.pid != os.getpid() and (mark := process.environ().get(HOST_VARIABLE)):
                yield process, mark


def _runs(process: psutil.Process, program: str) -> bool:
    """Returns whether a process is the program's JVM: those that started it on the host have the same words."""
    with suppress(psutil.Error):
        words = process.cmdline()
        return bool(words) and Path(words[0]).name == "java" and program in words
    return False
