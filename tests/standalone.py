"""Spark's standalone cluster on the loopback address, from the jars in the pyspark package."""

import os
import re
import time
from contextlib import ExitStack
from pathlib import Path

import pyspark

from harness import guard
from harness.setup.java import find_java

__all__ = ["StandaloneCluster"]

_HOME = Path(pyspark.__file__).parent
_READY_DEADLINE_S = 60.0
_READY = re.compile(r"Starting Spark master at (\S+)[\s\S]*New state: ALIVE")
_JVM = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dspark.master.rest.enabled=false")
_PORTS = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")


class StandaloneCluster:
    """`with` starts a master and its workers and ends them; they end with this process too, however that ends.

    Attributes:
        master: the master's address.
    """

    def __init__(self, folder: Path, *, workers: int, cores: int = 2, memory: str = "1g"):
        self.master = ""
        self._folder, self._workers, self._size = folder, workers, ("--cores", str(cores), "--memory", memory)
        self._processes = ExitStack()

    def __enter__(self) -> "StandaloneCluster":
        self._folder.mkdir(parents=True, exist_ok=True)
        try:
            self._start("master", "master.Master")
            self.master = self._address()
            for number in range(self._workers):
                place = ("--work-dir", str(self._folder / f"work{number}"))
                self._start(f"worker{number}", "worker.Worker", *self._size, *place, self.master)
        except BaseException:
            self._processes.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._processes.close()

    def _start(self, name: str, program: str, *options: str) -> None:
        # Without the Scala version a worker cannot start executors: "Cannot find any build directories".
        env = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_HOME": str(_HOME), "SPARK_SCALA_VERSION": "2.13"}
        command = [find_java(), *_JVM, "-cp", f"{_HOME}/jars/*", f"org.apache.spark.deploy.{program}", *_PORTS]
        with (self._folder / f"{name}.log").open("wb") as log:
            self._processes.enter_context(guard.spawn([*command, *options], stdout=log, stderr=log, env=env))

    def _address(self) -> str:
        log = self._folder / "master.log"
        end = time.monotonic() + _READY_DEADLINE_S
        while (found := _READY.search(log.read_text())) is None:
            assert time.monotonic() < end, f"waited {_READY_DEADLINE_S} s for the master: {log.read_text()[-2000:]}"
            time.sleep(0.05)
        return found[1]
