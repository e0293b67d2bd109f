"""The Spark session with the settings that a short epoch needs.

With Spark's own settings a host that is cut off is noticed after 120 s, and an epoch waits as long.
"""

import logging
import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyspark
from pyspark import SparkContext
from pyspark.sql import SparkSession

from impls.errors import UsageError
from impls.sockets import FILES_MIN, raise_file_limit
from impls.spark.cause import silence
from impls.spark.cluster import await_executor, end_session, start_in_time
from impls.spark.interrupts import contain_interrupts
from impls.spark.master import address_towards, check_master, check_retries, is_local, standalone_addresses
from impls.spark.shipping import Archive, cluster_settings, ship

_LOSSES = {
    "spark.executor.heartbeatInterval": "1s",
    "spark.storage.blockManagerHeartbeatTimeoutMs": "6s",  # after which the driver gives up an executor
    "spark.network.timeoutInterval": "1s",  # how often it looks
    "spark.network.timeout": "8s",  # after which a fetch gives up its connection
    "spark.rpc.io.connectionTimeout": "120s",  # else 8 s without an answer, on a busy host, part driver and master
    "spark.standalone.executorRemoveDelayOnDisconnection": "0s",  # 5 s, in wait for the master's words on it
    "spark.shuffle.io.retryWait": "1s",  # 5 s between the tries to fetch from a host that is gone
}


def _remote_settings(master: str | None) -> dict[str, str]:
    """Returns the settings of a session on a master elsewhere; none for a local one.

    The driver's address is that by which a standalone master is reached. For YARN and Kubernetes it is Spark's choice.
    """
    if master is None or is_local(master):
        return {}
    addresses = standalone_addresses(master)
    if not addresses:
        return _LOSSES
    own = address_towards(addresses[0][0])
    return {**_LOSSES, "spark.driver.host": own, "spark.driver.bindAddress": own}


_MICRO_BATCHES = ("sql.execution.streaming.runtime.MicroBatchExecution", "sql.execution.streaming.MicroBatchExecution")
_LOCALITY = "spark.shuffle.reduceLocality.enabled"
_CLASS_PATH = "spark.driver.extraClassPath"
_JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
_FAST = {
    "spark.ui.enabled": "false",
    "spark.sql.adaptive.enabled": "false",
    "spark.python.unix.domain.socket.enabled": "true",  # -60 ms an epoch
    "spark.sql.streaming.checkpointFileManagerClass":  # -50 ms an epoch: no process per file
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager",
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",  # -40 ms: no chmod process per file
    "spark.sql.ui.explainMode": "simple",  # -15 ms, with the next: no formatted plan that nobody reads
    "spark.sql.maxPlanStringLength": "100",
    "spark.driver.extraJavaOptions": _JVM,  # -50 ms on 2 cores
    "spark.executor.extraJavaOptions": _JVM,
    "spark.sql.streaming.numRecentProgressUpdates": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
    "spark.ui.showConsoleProgress": "false",
}
_SEATED = {
    _LOCALITY: "false"
}  # else on a cluster the tasks of a seat go where its records were read, every second epoch
_RETRIES = 4  # plain local[N] never retries a task: one killed Python worker would end the query
_ROOT = Path(__file__).resolve().parents[2]
_LOG = logging.getLogger(__package__)


def spark_session(
    jars: Sequence[Path],
    *,
    threads: int,
    master: str | None = None,
    name: str = "rescale",
    settings: Mapping[str, str] | None = None,
    archive: Archive = None,
) -> SparkSession:
    """Starts (or returns) the Spark session for live migration.

    Args:
        jars: Spark's Kafka connector.
        threads: tasks that run at once in local mode; as many as workers is best.
        master: a cluster's address; local mode by default.
        name: the application's name.
        settings: further Spark settings.
        archive: a packed environment for the executors of a cluster: its path or URI, or a function that makes it,
            which is called only if their own Python cannot run a step.

    Raises:
        UsageError: no master listens at the address, it gives no executor, or the executors' Python cannot run a step;
            nothing is left running.
    """
    check_master(master)
    _check_files()
    if is_local(master):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    _use_installed(local=is_local(master))
    paths = [str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
    builder = SparkSession.builder.appName(name).master(master or f"local[{threads},{_RETRIES}]")
    given = dict(settings or {})
    own = {**_FAST, **_remote_settings(master), "spark.python.daemon.module": "impls.spark.daemon"}
    own |= _finding(jars, given.pop(_CLASS_PATH, ""), local=is_local(master))
    own |= given if is_local(master) else _SEATED | cluster_settings(given)
    for key, value in own.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate() if master is None or is_local(master) else _on_cluster(builder, master, archive)
    spark.sparkContext.setLogLevel("ERROR")
    contain_interrupts()
    silence(spark, _MICRO_BATCHES)  # it prints a stack trace of a query that is ended on purpose
    return spark


def _check_files() -> None:
    if (most := raise_file_limit()) < FILES_MIN:
        raise UsageError(
            f"This process may open {most} files, and Spark needs {FILES_MIN:,}: raise the limit (ulimit -n 4096)."
        )


def _use_installed(*, local: bool) -> None:
    """Has pyspark start the Spark that it brought, and in local mode this Python, whatever the environment names.

    Another Spark than pyspark's own, or another Python without its packages, cannot run a step. On a cluster
    PYSPARK_PYTHON is a path of the hosts, and stays.
    """
    started = SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ
    home = os.environ.get("SPARK_HOME", "")
    if home and not started and is_another(Path(home), Path(pyspark.__file__).parent):
        _replace("SPARK_HOME", str(Path(pyspark.__file__).parent))
    if local and "PYSPARK_PYTHON" in os.environ:
        _replace("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


def is_another(home: Path, own: Path) -> bool:
    """Returns whether a home of Spark's is of another version than the one that pip installed with pyspark."""
    if not (own / "bin" / "spark-submit").exists():
        return False
    cores = [jar.name for jar in (own / "jars").glob("spark-core_*.jar")]
    return not any((home / "jars" / name).exists() for name in cores)


def _replace(variable: str, path: str) -> None:
    """Makes a variable name a path, and says so where it named another."""
    named = os.environ[variable]
    if not _same(named, path):
        _LOG.warning("%s=%s is not used: this program runs with %s.", variable, named, path)
        os.environ[variable] = path


def _same(named: str, path: str) -> bool:
    """Returns whether a program or folder, maybe one that the search path leads to, is that of a path."""
    found = Path(os.path.abspath(shutil.which(named) or named))  # noqa: PTH100 - links stay: a venv's Python is one
    return found.parent == Path(path).parent and found.resolve() == Path(path).resolve()


def local_location(folder: str) -> str:
    """Returns a local folder as Spark takes it whatever file system Hadoop's configuration has as its default."""
    return f"file://{folder}" if folder.startswith("/") else folder


def _finding(jars: Sequence[Path], class_path: str, *, local: bool) -> dict[str, str]:
    """Returns the settings by which Spark finds jars.

    A driver that starts has them on its class path, beside the user's: it copies none of them, and loads their classes
    sooner. One that runs already fetches them, and so do executors on a cluster.
    """
    names, running = [str(jar) for jar in jars], SparkContext._gateway is not None
    paths = os.pathsep.join(filter(None, [*([] if running else names), class_path]))
    return {
        **({_CLASS_PATH: paths} if paths else {}),
        **({"spark.jars": ",".join(names)} if names and (running or not local) else {}),
    }


def _on_cluster(builder: SparkSession.Builder, master: str, archive: Archive) -> SparkSession:
    spark = start_in_time(builder, master)
    try:
        await_executor(spark, master)
        ship(spark, archive)
    except UsageError:
        end_session(spark)
        raise
    return spark


def check_session(spark: SparkSession) -> None:
    """Raises UsageError for settings under which an epoch could run twice at once or never be retried."""
    conf = spark.sparkContext.getConf()
    if conf.get("spark.speculation", "false") == "true":
        raise UsageError("spark.speculation must be off: two attempts of one task would write one state.")
    master = conf.get("spark.master", "") or ""
    check_retries(master)
    if not is_local(master) and conf.get(_LOCALITY, "true") != "false":
        raise UsageError(
            f"{_LOCALITY} must be false on a cluster: workers would leave the hosts that have their state."
        )


LOCAL_FILES = {  # RocksDB's files are copied through Hadoop's LocalFileSystem, and not by the raw one
    "fs.file.impl": "org.apache.hadoop.fs.LocalFileSystem",
    "fs.file.impl.disable.cache": "true",  # it holds what other queries of the session use
}


@contextmanager
def with_settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Within it a session has settings, and behind it those of before; a query keeps the settings of its start."""
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            spark.conf.unset(name) if old is None else spark.conf.set(name, old)
