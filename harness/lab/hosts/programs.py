"""Spark's master and worker as programs: command lines, environments, logs, and the mark by which they are found."""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from re import Pattern

import psutil
import pyspark

from harness import guard
from harness.lab.hosts.settings import Settings
from harness.lab.waiting import wait_for
from harness.setup.java import use_java
from impls.errors import UsageError

HOST_VARIABLE = "RESCALE_HOST"  # by which every process of a host is known: FOLDER#NUMBER
_LOSS_NOTICED_S = 8  # after which a master gives up a worker that says nothing; it speaks four times as often
MASTER_UP = re.compile(r"Starting Spark master at (\S+)[\s\S]*New state: ALIVE")
WORKER_UP = re.compile(r"Successfully registered with master")
_HOME = Path(pyspark.__file__).parent
_LEAN = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData"  # executors too: all hosts share this machine
_JVM = (
    "-Xmx256m", "-Dspark.master.rest.enabled=false", f"-Dspark.worker.timeout={_LOSS_NOTICED_S}",
)  # fmt: skip


def master(java: Path, address: str, port: int) -> list[str]:
    """Returns the command of a master; port 0 is a free one."""
    return [*_program(java, "master.Master"), "--host", address, "--port", str(port), "--webui-port", "0"]


def worker(java: Path, address: str, settings: Settings, *, work: Path, master: str) -> list[str]:
    """Returns the command of a worker at an address, which belongs to a master and keeps executors' logs in `work`."""
    return [
        *_program(java, "worker.Worker"), "--host", address, "--webui-port", "0", "--cores", str(settings.cores),
        "--memory", settings.memory, "--work-dir", str(work), master,
    ]  # fmt: skip


def environment(address: str, folder: Path, mark: str) -> dict[str, str]:
    """Returns the environment of a program at an address, with temporary files in a folder and the host's mark."""
    # Without the Scala version a worker cannot start executors: "Cannot find any build directories".
    set_here = {
        "SPARK_HOME": str(_HOME), "SPARK_SCALA_VERSION": "2.13", "SPARK_LOCAL_IP": address,
        "SPARK_LOCAL_DIRS": str(folder / "local"), HOST_VARIABLE: mark,
        "JDK_JAVA_OPTIONS": _LEAN,
    }  # fmt: skip
    kept = ("JAVA_HOME", "PATH", "HOME", "USER", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH")
    return {**{name: os.environ[name] for name in kept if name in os.environ}, **set_here}


def _program(java: Path, name: str) -> list[str]:
    return [str(java), *_JVM, "-cp", f"{_HOME}/jars/*", f"org.apache.spark.deploy.{name}"]


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


_READY_DEADLINE_S = 60.0
_PASSED_ON = "AWS_"  # what an object store asks for, which executors have from their worker


class SparkProgram(guard.GuardedProgram):
    """A master or worker: `start()`, then `stop()`; it ends with this process, however that ends.

    Its log is `spark.log` in its folder; a worker has its executors' logs in `work` there.
    """

    def __init__(self, folder: Path, host: str, command: Sequence[str], up: Pattern[str]):
        super().__init__(folder, "spark.log")
        self._host, self._command, self._up = host, command, up

    def start(self) -> None:
        """Returns when the program is up, a worker when the master has it; raises UsageError if not in 60 s."""
        for name in ("work", "local"):
            (self._folder / name).mkdir(parents=True, exist_ok=True)
        own = {name: value for name, value in os.environ.items() if name.startswith(_PASSED_ON)}
        env = own | environment(self._host, self._folder, f"{self._folder}#{self._host}")
        with self.log.open("wb") as log:
            self._process = guard.spawn(self._command, stdout=log, stderr=log, env=env)
        try:
            wait_for(self._came_up, f"Spark's program at {self._host}", _READY_DEADLINE_S, error=UsageError)
        except UsageError:
            self.stop()
            raise

    def _came_up(self) -> bool:
        if self._up.search(self.log.read_text(errors="replace")):
            return True
        if not self.running:
            why = self.last_words()
            raise UsageError(f"Spark's program at {self._host} did not come up: {why}; its log is {self.log}.")
        return False


def spark_master(folder: Path, *, host: str, port: int) -> SparkProgram:
    """Returns a master that listens at a host's address and a port; raises UsageError where Java is missing."""
    return SparkProgram(folder, host, master(use_java(), host, port), MASTER_UP)


def spark_worker(folder: Path, host: str, size: Settings, *, master: str) -> SparkProgram:
    """Returns a worker at a host's address, of the cores and memory in `size`; raises UsageError where Java is missing.

    Args:
        folder: for its log, its executors' logs and their temporary files.
        host: address or name by which the master and other hosts reach this one.
        size: only its cores and its memory are used.
        master: spark://HOST:PORT.
    """
    command = worker(use_java(), host, size, work=folder / "work", master=master)
    return SparkProgram(folder, host, command, WORKER_UP)
