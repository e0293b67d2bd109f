"""The Kafka broker of a run: embedded, as a child process with its data in the run's folder, or an existing one."""

import contextlib
import os
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import IO, Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from harness import guard
from impls.errors import UsageError

__all__ = ["Broker", "EmbeddedBroker", "ExternalBroker", "create_topics", "open_broker"]

_READY_DEADLINE_S = 60.0
_REACH_DEADLINE_S = 10.0
_CREATE_DEADLINE_S = 30.0
_STOP_GRACE_S = 10.0
_POLL_S = 0.02
_PORT_TRIES = 5
_HOST = "127.0.0.1"
_CLUSTER_ID = "UmQ0GCpoQCO48RE6UV_CIw"
_MESSAGE_BYTES_MAX = 32 << 20
_JVM = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-Djava.awt.headless=true")

_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{host}:{controller}
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller}
advertised.listeners=PLAINTEXT://{host}:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={logs}
auto.create.topics.enable=false
log.retention.ms=-1
log.retention.bytes=-1
message.max.bytes={message_bytes}
replica.fetch.max.bytes={message_bytes}
socket.request.max.bytes=104857600
broker.session.timeout.ms=4000
broker.heartbeat.interval.ms=500
group.initial.rebalance.delay.ms=0
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
log.cleaner.dedupe.buffer.size=4194304
num.network.threads=2
num.io.threads=4
background.threads=2
"""
_LOGGING = """\
status = error
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{ISO8601} %p %m (%c)%n
rootLogger.level = warn
rootLogger.appenderRef.out.ref = out
logger.server.name = kafka.server.KafkaRaftServer
logger.server.level = info
"""


class Broker(ABC):
    """A Kafka broker: `start()`, then use `bootstrap`, then `stop()`; `with` does both."""

    bootstrap: str
    pid: int | None = None

    @abstractmethod
    def start(self) -> None:
        """Returns when the broker answers; raises UsageError when it does not before its deadline."""

    @abstractmethod
    def stop(self) -> None:
        """Lets the broker go; its data stays."""

    def __enter__(self) -> "Broker":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class ExternalBroker(Broker):
    """A broker that somebody else runs."""

    def __init__(self, bootstrap: str):
        self.bootstrap = bootstrap

    def start(self) -> None:
        """Returns when the broker answers; raises UsageError when it does not within 10 s."""
        admin = _admin(self.bootstrap)
        try:
            admin.list_topics(timeout=_REACH_DEADLINE_S)
        except KafkaException as error:
            raise UsageError(
                f"The broker at {self.bootstrap} does not answer within {_REACH_DEADLINE_S:.0f} s "
                f"({_words(error)}): check --bootstrap-servers, or leave it out for an embedded broker."
            ) from error

    def stop(self) -> None:
        """Does nothing."""


class EmbeddedBroker(Broker):
    """A KRaft broker of one node on free ports of this host; it ends with this process, however that ends.

    A start on a folder that an earlier broker used, even one that was killed, finds its topics again.
    """

    def __init__(self, data_dir: Path, jars: Sequence[Path], java: Path, heap_mb: int = 512, port: int | None = None):
        """Prepares a broker without starting it.

        Args:
            data_dir: folder for its settings, its log `broker.log` and its data; made if missing.
            jars: the broker's jars.
            java: the program `java`.
            heap_mb: the JVM's heap at most.
            port: the port to listen on, None for a free one.
        """
        self._port = port
        self._folder = data_dir.resolve()
        self._java = java
        self._classpath = os.pathsep.join(map(str, jars))
        self._heap = f"-Xmx{heap_mb}m"
        self._process: guard.GuardedProcess | None = None

    @property
    def log(self) -> Path:
        """What the broker says."""
        return self._folder / "broker.log"

    @property
    def running(self) -> bool:
        """Whether the broker's process lives."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Starts the broker and returns when it answers (about 2 s); raises UsageError when it does not in 60 s."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            (self._folder / "log4j2.properties").write_text(_LOGGING)
            self.log.touch()
            self._format()
            for _ in range(_PORT_TRIES):
                if self._try_ports():
                    return
        except OSError as error:
            raise UsageError(f"The broker cannot be started in {self._folder}: {error.strerror or error}.") from error
        raise UsageError(f"The broker found its ports taken {_PORT_TRIES} times: see {self.log}.")

    def restart(self) -> None:
        """Starts a broker that was killed again, on its ports and data, and returns when it answers.

        Raises UsageError when it does not in 60 s, or when its ports are taken.
        """
        port = int(self.bootstrap.rpartition(":")[2])
        self.stop()
        for _ in range(_PORT_TRIES):  # a client that looks for the broker may sit on its port for a moment
            if self._launch(port):
                return
        raise UsageError(f"The broker did not start again: {self._tail()}; its log is {self.log}.")

    def stop(self) -> None:
        """Ends the broker, gracefully if it can within 10 s; the data folder stays."""
        if self._process is not None:
            self._process.stop()
        self._process, self.pid = None, None

    def _format(self) -> None:
        """Formats the data folder once; a cut-off format never looks like a finished one."""
        if (self._folder / "data").exists():
            return
        self._write_properties(*_free_ports(), logs=self._folder / "data.new")
        tool = ["kafka.tools.StorageTool", "format", "--ignore-formatted", "-t", _CLUSTER_ID]
        with (
            self.log.open("ab") as log,
            self._spawn([*tool, "-c", self._folder / "server.properties"], log) as process,
        ):
            try:
                code = process.wait(_READY_DEADLINE_S)
            except subprocess.TimeoutExpired:
                code = None
        if code != 0:
            raise UsageError(f"The broker's data folder {self._folder} could not be formatted: {self._tail()}.")
        (self._folder / "data.new").rename(self._folder / "data")

    def _try_ports(self) -> bool:
        """Starts the broker on free ports; returns False if another process took one of them in the meantime."""
        free, controller = _free_ports()
        port = self._port or free
        self._write_properties(port, controller, logs=self._folder / "data")
        said = self.log.stat().st_size
        if self._launch(port):
            return True
        if self._port or b"Address already in use" not in self.log.read_bytes()[said:]:
            raise UsageError(f"The broker did not start: {self._tail()}; its log is {self.log}.")
        return False

    def _launch(self, port: int) -> bool:
        """Starts the broker that `server.properties` describes; returns False when it ended instead of answering."""
        with self.log.open("ab") as log:
            self._process = self._spawn(["kafka.Kafka", self._folder / "server.properties"], log)
        try:
            ready = self._await_port(port)
            if ready:
                self._await_answer(f"{_HOST}:{port}")
        except BaseException:
            self.stop()
            raise
        if ready:
            self.bootstrap, self.pid = f"{_HOST}:{port}", self._process.pid
            return True
        self.stop()
        return False

    def _await_port(self, port: int) -> bool:
        """Returns True when the port is open and False when the broker has ended."""
        assert self._process is not None
        deadline = time.monotonic() + _READY_DEADLINE_S
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                return False
            with contextlib.suppress(OSError), socket.create_connection((_HOST, port), timeout=1):
                return True
            time.sleep(_POLL_S)
        raise UsageError(f"The broker did not open its port in {_READY_DEADLINE_S:.0f} s: {self._tail()}.")

    def _await_answer(self, bootstrap: str) -> None:
        admin, deadline = _admin(bootstrap), time.monotonic() + _READY_DEADLINE_S
        while True:
            try:
                if admin.list_topics(timeout=1).brokers:
                    return
            except KafkaException as error:
                if time.monotonic() > deadline:
                    raise UsageError(f"The broker opened its port but never answered ({_words(error)}).") from error
            if self._process is None or self._process.poll() is not None:
                raise UsageError(f"The broker ended while it started: {self._tail()}; its log is {self.log}.")

    def _spawn(self, arguments: Sequence[str | Path], log: IO[bytes]) -> guard.GuardedProcess:
        logging = f"-Dlog4j2.configurationFile={self._folder / 'log4j2.properties'}"
        command: list[str | Path] = [self._java, self._heap, *_JVM, logging, "-cp", self._classpath, *arguments]
        return guard.spawn(command, stdout=log, stderr=log, grace_s=_STOP_GRACE_S)

    def _write_properties(self, port: int, controller: int, *, logs: Path) -> None:
        text = _PROPERTIES.format(
            host=_HOST, port=port, controller=controller, logs=logs, message_bytes=_MESSAGE_BYTES_MAX
        )
        (self._folder / "server.properties").write_text(text)

    def _tail(self) -> str:
        lines = [line for line in self.log.read_text(errors="replace").splitlines() if line.strip()]
        telling = [line for line in lines if " ERROR " in line or " FATAL " in line or "Exception" in line]
        return (telling or lines or ["it said nothing"])[-1].strip()


def open_broker(bootstrap: str | None, data_dir: Path, jars: Sequence[Path], java: Path) -> Broker:
    """Returns a broker that answers: the one at `bootstrap`, or an embedded one when that is None.

    Raises:
        UsageError: it does not answer before its deadline.
    """
    broker = EmbeddedBroker(data_dir, jars, java) if bootstrap is None else ExternalBroker(bootstrap)
    broker.start()
    return broker


def create_topics(bootstrap: str, topics: Mapping[str, int], *, broker_time: bool = False) -> None:
    """Creates topics (name -> partitions) that keep their records; one that exists with as many partitions is kept.

    With `broker_time` a record carries the time at which the broker appended it, not the one its producer gives.

    Raises:
        UsageError: the broker refuses, or a topic exists with another number of partitions.
    """
    admin = _admin(bootstrap)
    config = {"retention.ms": "-1", **({"message.timestamp.type": "LogAppendTime"} if broker_time else {})}
    new = [
        NewTopic(name, num_partitions=partitions, replication_factor=-1, config=config)
        for name, partitions in topics.items()
    ]
    for name, created in admin.create_topics(new, request_timeout=_CREATE_DEADLINE_S).items():
        try:
            created.result(_CREATE_DEADLINE_S)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise UsageError(f"The broker refuses to create the topic {name}: {_words(error)}.") from error
            _check_partitions(admin, name, topics[name])
    _await_leaders(admin, topics)


def _await_leaders(admin: AdminClient, topics: Mapping[str, int]) -> None:
    """Waits until every partition's leader answers: it is named before it has made the partition's log."""
    end = time.monotonic() + _CREATE_DEADLINE_S
    ends = {TopicPartition(name, number): OffsetSpec.latest() for name in topics for number in range(topics[name])}
    while True:
        waiting = [place.topic for place, told in admin.list_offsets(ends).items() if not _answered(told)]
        if not waiting:
            return
        if time.monotonic() > end:
            raise UsageError(
                f"The topic {waiting[0]} has no leader after {_CREATE_DEADLINE_S:.0f} s: see the broker's log."
            )
        time.sleep(_POLL_S)


def _answered(told: Future[Any]) -> bool:
    try:
        told.result(_CREATE_DEADLINE_S)
    except KafkaException:
        return False
    return True


def _check_partitions(admin: AdminClient, name: str, wanted: int) -> None:
    found = len(admin.list_topics(name, timeout=_CREATE_DEADLINE_S).topics[name].partitions)
    if found != wanted:
        raise UsageError(
            f"The topic {name} exists with {found} partitions, not {wanted}: delete it, or ask for {found}."
        )


def _admin(bootstrap: str) -> AdminClient:
    quiet = {"log_level": 0, "error_cb": lambda _: None}  # errors come back from the calls
    return AdminClient({"bootstrap.servers": bootstrap, **quiet})


def _words(error: KafkaException) -> str:
    return str(error.args[0].str())


def _free_ports() -> tuple[int, int]:
    with socket.create_server((_HOST, 0)) as first, socket.create_server((_HOST, 0)) as second:
        return first.getsockname()[1], second.getsockname()[1]
