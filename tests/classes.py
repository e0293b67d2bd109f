"""Archives of the classes that Spark's and Kafka's JVMs load at each start, which save half of the time of a start.

A JVM takes its archive by an environment variable, and reads the jars instead where it does not fit them. They are made
once for a Java, a pyspark and the jars beside it, and kept in the cache folder. Users' runs know nothing of it: in them
the start of a JVM is a part of what a restart costs.
"""

import contextlib
import hashlib
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pyspark

from harness.setup.java import cache_folder, find_java, jars_folder, use_java
from impls.errors import UsageError

__all__ = ["end", "use_archives"]

_SPARK, _BROKER = "SPARK_SUBMIT_OPTS", "RESCALE_BROKER_JVM"
_QUIET = "-Xlog:disable"  # where the archive does not fit, and what cannot go into it
_DEADLINE_S = 400.0
_USE = "use"  # argument
_ROOT = Path(__file__).parents[1]


def use_archives() -> "subprocess.Popen[bytes] | None":
    """Lets every Spark driver and broker that this process starts, or its children, take the archives.

    Returns the process that makes them, and fetches the jars before, where they are missing; what starts before its end
    reads the jars instead.
    """
    if _SPARK in os.environ:
        return None
    try:
        archives = _places()
    except (UsageError, subprocess.SubprocessError, OSError) as error:
        _say(error)
        return None
    maker = None
    if not all(archive.exists() for archive in archives.values()):
        environ = os.environ | {"PYTHONPATH": str(_ROOT)}
        maker = subprocess.Popen([sys.executable, __file__], env=environ, start_new_session=True)
    os.environ |= {name: f"-XX:SharedArchiveFile={archive} {_QUIET}" for name, archive in archives.items()}
    return maker


def end(maker: "subprocess.Popen[bytes]") -> None:
    """Ends the making, and what it has started, where it goes on still."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(maker.pid, signal.SIGTERM)
    maker.wait(_DEADLINE_S)


def _say(error: Exception) -> None:
    sys.stderr.write(f"The classes of Spark and Kafka are not archived, they start slower: {error}\n")


def _places() -> dict[str, Path]:
    """Returns the variable of each JVM and the archive that it names."""
    jars = Path(pyspark.__file__).parent / "jars"
    java = subprocess.run([find_java(), "-version"], capture_output=True, text=True, timeout=_DEADLINE_S, check=True)
    of_spark = sorted((jar.name, jar.stat().st_mtime_ns) for jar in jars.iterdir())
    known = f"{java.stderr} {jars} {of_spark} {jars_folder()} {Path(__file__).read_text()}"
    version = hashlib.sha256(known.encode()).hexdigest()[:16]
    return {name: cache_folder() / f"classes-{name.lower()}-{version}.jsa" for name in (_SPARK, _BROKER)}


def _make() -> None:
    """Has an example of this project make the archives of what it loads."""
    archives = _places()
    partial = {name: archive.with_suffix(f".{os.getpid()}") for name, archive in archives.items()}
    use_java()
    environ = os.environ | {name: f"-XX:ArchiveClassesAtExit={path} {_QUIET}" for name, path in partial.items()}
    command = [sys.executable, __file__, _USE]
    try:
        subprocess.run(command, cwd=_ROOT, env=environ, capture_output=True, timeout=_DEADLINE_S, check=True)
        for other in {*cache_folder().glob("classes-*")} - {
            *partial.values()
        }:  # of another Java, or left by one cut off
            other.unlink(missing_ok=True)
        for name, archive in archives.items():
            partial[name].rename(archive)
    finally:
        for archive in partial.values():
            archive.unlink(missing_ok=True)


def _use() -> None:
    """Runs an example, and waits until its JVMs have ended by themselves."""
    from pyspark import SparkContext

    from examples import sessions
    from harness.lab.bringup import embedded_broker
    from rescale_bench.playground import Playground

    with tempfile.TemporaryDirectory() as folder, embedded_broker(Path(folder)) as broker:
        with Playground(broker.bootstrap, threads=2) as here:
            sessions.main(here)
        assert broker.pid is not None
        driver = SparkContext._gateway.proc  # type: ignore[union-attr]
        driver.stdin.close()
        driver.wait(_DEADLINE_S)
        os.kill(broker.pid, signal.SIGTERM)
        psutil.Process(broker.pid).wait(_DEADLINE_S)


if __name__ == "__main__":
    try:
        _use() if sys.argv[1:] == [_USE] else _make()
    except (UsageError, subprocess.SubprocessError, OSError) as failed:
        _say(failed)
