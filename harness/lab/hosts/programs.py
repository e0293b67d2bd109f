"""Spark's master and worker as programs: command lines, environments, and what their logs say when they are up."""

import os
import re
from pathlib import Path

import pyspark

from harness.lab.hosts.settings import Settings

__all__ = ["HOST_VARIABLE", "MASTER_UP", "WORKER_UP", "environment", "master", "worker"]

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
    own = {
        "SPARK_HOME": str(_HOME), "SPARK_SCALA_VERSION": "2.13", "SPARK_LOCAL_IP": address,
        "SPARK_LOCAL_DIRS": str(folder / "local"), HOST_VARIABLE: mark,
        "JDK_JAVA_OPTIONS": _LEAN,
    }  # fmt: skip
    kept = ("JAVA_HOME", "PATH", "HOME", "USER", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH")
    return {**{name: os.environ[name] for name in kept if name in os.environ}, **own}


def _program(java: Path, name: str) -> list[str]:
    return [str(java), *_JVM, "-cp", f"{_HOME}/jars/*", f"org.apache.spark.deploy.{name}"]
