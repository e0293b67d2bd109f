"""What a session on a cluster needs: a start that ends in time, executors, their clocks, and an end without a JVM."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from impls.errors import UsageError
from impls.spark.master import standalone_addresses
from impls.spark.readiness import host_name

_START_DEADLINE_S = 20.0
_EXECUTOR_DEADLINE_S = 15.0
_JVM_DEADLINE_S = 30.0
_OF_JVM_START = 10.0  # a start takes 2 s; where it took longer, the machine is busy and a session takes longer too
_POLL_S = 0.1
_MESSAGES = "org.apache.spark.deploy.DeployMessages"


def start_in_time(builder: SparkSession.Builder, master: str) -> SparkSession:
    """Starts a session; raises UsageError, with its JVM ended, when the master does not register it in time.

    That is 20 s, and more on a busy machine. Spark itself would try for a minute, and then fail wherever the session is
    used first. The start of the JVM, which takes long on a busy machine, does not count.
    """
    begin = time.monotonic()
    SparkContext._ensure_initialized(conf=SparkConf().setAll([*builder._options.items()]))
    deadline_s = max(_START_DEADLINE_S, _OF_JVM_START * (time.monotonic() - begin))
    late = threading.Event()

    def cut_off() -> None:
        late.set()
        if (process := getattr(SparkContext._gateway, "proc", None)) is not None:
            process.kill()

    timer = threading.Timer(deadline_s, cut_off)
    timer.start()
    try:
        return builder.getOrCreate()
    except Exception as error:
        if not late.is_set():
            raise
        _forget_jvm()
        raise UsageError(
            f"What listens at {master} did not take the application within {deadline_s:.0f} s: "
            "give the address of a Spark master, not that of its web page."
        ) from error
    finally:
        timer.cancel()


def end_session(spark: SparkSession) -> None:
    """Stops a session and its JVM, so that the next session starts a new one."""
    gateway = SparkContext._gateway
    spark.stop()
    if gateway is not None:
        gateway.shutdown()
        _forget_jvm()


def _forget_jvm() -> None:
    process = getattr(SparkContext._gateway, "proc", None)
    if process is not None:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()  # the JVM ends when its standard input does
        process.wait(_JVM_DEADLINE_S)
    SparkContext._gateway = SparkContext._jvm = None


def await_executor(spark: SparkSession, master: str) -> None:
    """Returns when a standalone cluster has given its executors; raises UsageError when there is none within 15 s.

    Those that the master has launched and that have not come by then are not waited for.
    """
    if not standalone_addresses(master) or spark.conf.get("spark.dynamicAllocation.enabled", "false") == "true":
        return
    end = time.monotonic() + _EXECUTOR_DEADLINE_S
    while (here := _executors(spark)) < max(1, _launched(spark, master)):
        if time.monotonic() > end:
            if here:
                return
            raise UsageError(
                f"The Spark master at {master} gave no executor within {_EXECUTOR_DEADLINE_S:.0f} s: "
                f"{_state_of(spark, master)}."
            )
        time.sleep(_POLL_S)


def registered(spark: SparkSession) -> frozenset[str]:
    """Returns the addresses of the executors that are registered now, and of the driver."""
    known = spark.sparkContext._jsc.sc().getExecutorMemoryStatus()
    return frozenset(str(known.keySet().mkString(" ")).split())


def _executors(spark: SparkSession) -> int:
    try:
        return len(registered(spark)) - 1
    except Py4JError:  # the master has removed the application, as its executors ended at once
        return 0


def _launched(spark: SparkSession, master: str) -> int:
    """Returns how many executors the master has launched for this application, 0 where it does not answer."""
    try:
        apps = [app for state in _states(spark, master) for app in state.activeApps()]
        return sum(int(app.executors().size()) for app in apps if str(app.id()) == spark.sparkContext.applicationId)
    except Py4JError:
        return 0


def _state_of(spark: SparkSession, master: str) -> str:
    """Returns what the master has to give, in words."""
    try:
        workers = [worker for state in _states(spark, master) for worker in state.workers() if worker.isAlive()]
    except Py4JError:
        return "it no longer answers"
    if not workers:
        return "it has no worker, so start one"
    cores, used = (sum(getattr(worker, name)() for worker in workers) for name in ("cores", "coresUsed"))
    memory = max(worker.memory() - worker.memoryUsed() for worker in workers)
    needed = spark.sparkContext._jsc.sc().executorMemory()
    return (
        f"of its {cores} cores {cores - used} are free, of a worker's memory {memory} MiB at most, and an executor "
        f"takes {needed} MiB and a core; if that is there, the worker's own log says why no executor runs"
    )


def _connections(named: Any) -> Any:
    """Returns the session's connections, by their field: a method of the class names what Spark does not bring."""
    environment = named("org.apache.spark.SparkEnv$").getField("MODULE$").get(None).get()
    field = named("org.apache.spark.SparkEnv").getDeclaredField("rpcEnv")
    field.setAccessible(True)
    return field.get(environment)


def _states(spark: SparkSession, master: str) -> Iterator[Any]:
    """Asks the masters, through the session's own connection, for the workers and applications that they know."""
    jvm: Any = spark._jvm
    named = jvm.java.lang.Class.forName
    question = named(f"{_MESSAGES}$RequestMasterState$").getField("MODULE$").get(None)
    answer = jvm.scala.reflect.ClassTag.apply(named(f"{_MESSAGES}$MasterStateResponse"))
    connections = _connections(named)
    for host, port in standalone_addresses(master):
        address = jvm.org.apache.spark.rpc.RpcAddress(host, port)
        yield connections.setupEndpointRef(address, "Master").askSync(question, answer)


ClockOffset = tuple[float, float]  # milliseconds by which a clock is ahead of this machine's, and how exact that is

_ROUNDS = 20
_DEADLINE_S = 5.0
_BYTES = 8
_LOOK_S = 0.2
_ANSWER = "host string, ahead double, within double"


def clock_offsets(spark: SparkSession, address: str) -> dict[str, ClockOffset]:
    """Returns the offset of each host's clock by the host's name; nothing where not all slots are free at once.

    Args:
        spark: a session on a cluster.
        address: of this machine as the hosts reach it.
    """
    tasks = spark.sparkContext.defaultParallelism
    with serve_clock(address) as at:

        def ask(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for _ in batches:
                pass
            ahead, within = ask_clock(at)
            yield pa.RecordBatch.from_pydict({"host": [host_name()], "ahead": [ahead], "within": [within]})

        try:
            rows = spark.range(0, tasks, 1, tasks).mapInArrow(ask, _ANSWER, barrier=True).collect()
        except PySparkException:
            return {}
    offsets: dict[str, ClockOffset] = {}
    for row in rows:
        one = (float(row["ahead"]), float(row["within"]))
        offsets[row["host"]] = min(offsets.get(row["host"], one), one, key=lambda offset: offset[1])
    return offsets


@contextmanager
def serve_clock(address: str) -> Iterator[tuple[str, int]]:
    """Answers every eight bytes that come to a port of an address with this machine's time; yields address and port."""
    ended = threading.Event()
    with socket.create_server((address, 0)) as server:
        server.settimeout(_LOOK_S)

        def serve() -> None:
            while not ended.is_set():
                try:
                    connection, _ = server.accept()
                except TimeoutError:
                    continue
                except OSError:  # such as no file descriptor left: whoever asks tries again
                    ended.wait(_LOOK_S)
                    continue
                threading.Thread(target=_answer, args=(connection,), daemon=True).start()

        thread = threading.Thread(target=serve, name="clock", daemon=True)
        thread.start()
        try:
            yield (address, int(server.getsockname()[1]))
        finally:
            ended.set()
            thread.join(_DEADLINE_S)


def _answer(connection: socket.socket) -> None:
    with connection, suppress(OSError):
        connection.settimeout(_DEADLINE_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while connection.recv(_BYTES, socket.MSG_WAITALL):
            connection.sendall(time.time_ns().to_bytes(_BYTES, "big"))


def ask_clock(at: tuple[str, int]) -> ClockOffset:
    """Returns the offset of this process's clock from the one that is served, from the quickest of twenty answers.

    The answer was given at some time between question and answer, so the offset is exact to half of that.
    """
    best = (0.0, float("inf"))
    with socket.create_connection(at, _DEADLINE_S) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(_ROUNDS):
            asked = time.time_ns()
            client.sendall(bytes(_BYTES))
            told = client.recv(_BYTES, socket.MSG_WAITALL)
            answered = time.time_ns()
            if len(told) < _BYTES:
                raise ConnectionError("the clock's server has ended")
            ahead = (asked + answered) / 2 - int.from_bytes(told, "big")
            best = min(best, (ahead / 1e6, (answered - asked) / 2e6), key=lambda offset: offset[1])
    return best
