"""The Kafka broker of a run: embedded, as a child process with its data in the run's folder, or an existing one."""

import base64
import contextlib
import os
import shlex
import shutil
import socket
import subprocess
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from confluent_kafka import KafkaException

from harness import guard
from harness.lab.ports import LOOPBACK, free_ports
from harness.lab.topics import admin_of, words_of
from impls.errors import UsageError

_READY_DEADLINE_S = 60.0
_REACH_DEADLINE_S = 10.0
_STOP_GRACE_S = 10.0
_POLL_S = 0.02
_PORT_TRIES = 5
_MESSAGE_BYTES_MAX = 32 << 20
_JVM = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-Djava.awt.headless=true")
_MORE = "RESCALE_BROKER_JVM"  # variable with more options for the JVM of an embedded broker
_HERE = Path(__file__).parent
_PROPERTIES, _LOGGING = "server.properties", "log4j2.properties"


class Broker(ABC):
    """A Kafka broker: `start()`, then use `bootstrap`, then `stop()`; `with` does both."""

    bootstrap: str

    @property
    def pid(self) -> int | None:
        """Process id of a broker that is this program's own and runs."""
        return None

    @abstractmethod
    def start(self) -> None:
        """Returns when the broker answers; raises UsageError when it does not before its deadline."""

    @abstractmethod
    def stop(self) -> None:
        """Releases the broker; its data stays."""

    @abstractmethod
    def revive(self) -> None:
        """Starts the broker again if it is this program's own and has died."""

    def __enter__(self) -> "Broker":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class ExternalBroker(Broker):
    """A broker that runs elsewhere."""

    def __init__(self, bootstrap: str):
        self.bootstrap = bootstrap

    def start(self) -> None:
        """Returns when the broker answers; raises UsageError when it does not within 10 s."""
        admin = admin_of(self.bootstrap)
        try:
            admin.list_topics(timeout=_REACH_DEADLINE_S)
        except KafkaException as error:
            raise UsageError(
                f"The broker at {self.bootstrap} does not answer within {_REACH_DEADLINE_S:.0f} s "
                f"({words_of(error)}): check --bootstrap-servers, or leave it out for an embedded broker."
            ) from error

    def stop(self) -> None:
        """Does nothing."""

    def revive(self) -> None:
        """Does nothing."""


class EmbeddedBroker(guard.GuardedProgram, Broker):
    """A KRaft broker of one node on free ports of an address; it ends with this process, however that ends.

    A start on a folder that an earlier broker used, even one that was killed, finds its topics again.
    """

    def __init__(
        self, data_dir: Path, jars: Sequence[Path], java: Path, *, heap_mb: int = 512, port: int | None = None,
        host: str = LOOPBACK, more: str = "",
    ):  # fmt: skip
        """Prepares a broker without starting it.

        Args:
            data_dir: folder for its settings, its log `broker.log` and its data; made if missing.
            jars: the broker's jars.
            java: the program `java`.
            heap_mb: the JVM's heap at most.
            port: the port to listen on, None for a free one.
            host: the address to listen on, by which all clients reach it.
            more: further lines of `broker.properties`, with its {names}; of two lines of one name the last counts.
        """
        super().__init__(data_dir.resolve(), "broker.log")
        self._port, self._host, self._more = port, host, more
        self._java = java.absolute() if len(java.parts) > 1 else java  # it is started in another folder
        self._classpath = os.pathsep.join(str(jar.absolute()) for jar in jars)
        self._heap = f"-Xmx{heap_mb}m"

    def start(self) -> None:
        """Starts the broker and returns when it answers (about 2 s); raises UsageError when it does not in 60 s."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(_HERE / _LOGGING, self._folder / _LOGGING)
            self.log.touch()
            self._format()
            for _ in range(_PORT_TRIES):
                if self._try_ports():
                    return
        except OSError as error:
            raise UsageError(f"The broker cannot be started in {self._folder}: {error.strerror or error}.") from error
        raise UsageError(f"The broker found its ports taken {_PORT_TRIES} times: see {self.log}.")

    def revive(self) -> None:
        """Starts the broker again if it has died; raises what `restart` raises."""
        if not self.running:
            self.restart()

    def restart(self) -> None:
        """Starts a broker that was killed again, on its ports and data, and returns when it answers.

        Raises UsageError when it does not in 60 s, or when its ports are taken.
        """
        port = int(self.bootstrap.rpartition(":")[2])
        self.stop()
        for _ in range(_PORT_TRIES):  # a client that looks for the broker may sit on its port for a moment
            if self._launch(port):
                return
        raise UsageError(f"The broker did not start again: {self.last_words()}; its log is {self.log}.")

    def _format(self) -> None:
        """Formats the data folder once; a cut-off format never looks like a finished one."""
        if (self._folder / "data").exists():
            return
        self._write_properties(*free_ports(self._host, 2), logs="data.new")
        tool = ["kafka.tools.StorageTool", "format", "--ignore-formatted", f"--cluster-id={_new_id()}"]
        with self.log.open("ab") as log, self._spawn([*tool, "-c", _PROPERTIES], log) as process:
            try:
                code = process.wait(_READY_DEADLINE_S)
            except subprocess.TimeoutExpired:
                code = None
        if code != 0:
            raise UsageError(f"The broker's data folder {self._folder} could not be formatted: {self.last_words()}.")
        (self._folder / "data.new").rename(self._folder / "data")

    def _try_ports(self) -> bool:
        """Starts the broker on free ports; returns False if another process took one of them in the meantime."""
        free, controller = free_ports(self._host, 2)
        port = self._port or free
        self._write_properties(port, controller, logs="data")
        said = self.log.stat().st_size
        if self._launch(port):
            return True
        if self._port or b"Address already in use" not in self.log.read_bytes()[said:]:
            raise UsageError(f"The broker did not start: {self.last_words()}; its log is {self.log}.")
        return False

    def _launch(self, port: int) -> bool:
        """Starts the broker that `server.properties` describes; returns False when it ended instead of answering."""
        with self.log.open("ab") as log:
            self._process = self._spawn(["kafka.Kafka", _PROPERTIES], log)
        try:
            ready = self._await_port(port) and self._await_answer(f"{self._host}:{port}")
        except BaseException:
            self.stop()
            raise
        if ready:
            self.bootstrap = f"{self._host}:{port}"
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
            with contextlib.suppress(OSError), socket.create_connection((self._host, port), timeout=1):
                return True
            time.sleep(_POLL_S)
        raise UsageError(f"The broker did not open its port in {_READY_DEADLINE_S:.0f} s: {self.last_words()}.")

    def _await_answer(self, bootstrap: str) -> bool:
        """Returns True when this broker answers, by its cluster's id, and False when it has ended."""
        assert self._process is not None
        admin, own = admin_of(bootstrap), _id_of(self._folder / "data")
        deadline, why = time.monotonic() + _READY_DEADLINE_S, "another one does"
        while time.monotonic() < deadline:
            try:
                found = admin.list_topics(timeout=1)
                if found.brokers and found.cluster_id == own:
                    return True
            except KafkaException as error:
                why = words_of(error)
            if self._process.poll() is not None:
                return False
            time.sleep(_POLL_S)
        raise UsageError(f"The broker opened its port but never answered ({why}).")

    def _spawn(self, arguments: Sequence[str], log: IO[bytes]) -> guard.GuardedProcess:
        """Starts a program in the folder, by which it needs no name of a path: Kafka takes a comma for a list."""
        logging, more = f"-Dlog4j2.configurationFile={_LOGGING}", shlex.split(os.environ.get(_MORE, ""))
        command: list[str | Path] = [self._java, self._heap, *_JVM, *more, logging, "-cp", self._classpath, *arguments]
        env = {**os.environ, "LC_ALL": "C.UTF-8"}  # else Java 17 has "?" for letters of the folder's name
        return guard.spawn(command, stdout=log, stderr=log, env=env, cwd=self._folder, grace_s=_STOP_GRACE_S)

    def _write_properties(self, port: int, controller: int, *, logs: str) -> None:
        text = (_HERE / "broker.properties").read_text(encoding="utf-8") + self._more
        text = text.format(
            host=self._host, port=port, controller=controller, logs=logs, message_bytes=_MESSAGE_BYTES_MAX
        )
        (self._folder / _PROPERTIES).write_text(text)


def _new_id() -> str:
    """Returns the id of a new cluster, in Kafka's form."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


def _id_of(data: Path) -> str:
    """Returns the id of the cluster whose data a folder holds."""
    lines = (data / "meta.properties").read_text().splitlines()
    return next(line.partition("=")[2] for line in lines if line.startswith("cluster.id="))
