"""What a run needs of another engine, and one Java process of it, which ends with this process."""

import hashlib
import json
import os
import signal
import subprocess
import tempfile
import threading
import urllib.error
import urllib.request
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from harness import guard
from harness.setup.java import cache_folder, fetched, find_javac, only_one, use_java
from impls.driver.arrivals import end_offsets
from impls.errors import StateError, UsageError

_ASK_S = 10.0


@dataclass(frozen=True)
class Job:
    """What an engine is to run.

    Attributes:
        bootstrap: the broker's address.
        topics: of the input; the first one's records have results, those of the others make state.
        results: topic of the results.
        group: consumer group of the input.
        most_workers: most workers that there will be.
        folder: for the engine's state, settings and logs.
        query: of NEXMark, "" for a count of keys.
        disorder_ms: how far the query's events of one partition may be out of order.
    """

    bootstrap: str
    topics: tuple[str, ...]
    results: str
    group: str
    most_workers: int
    folder: Path
    query: str = ""
    disorder_ms: int = 0


class Engine(ABC):
    """Runs a job in processes of its own: start(), any rescale(), stop(); check() in between.

    Attributes:
        name: for people.
        stops: whether the job is down during a rescale.
    """

    name: str
    stops: bool = False

    @abstractmethod
    def start(self, workers: int) -> None:
        """Returns when the job runs; raises StateError when it does not in time."""

    @abstractmethod
    def rescale(self, workers: int) -> None:
        """Returns when the job runs with so many workers; raises StateError when it does not in time."""

    @abstractmethod
    def kill_worker(self) -> int:
        """Kills a process that holds state with -9, starts it again at once, and returns the id of the killed one."""

    @abstractmethod
    def check(self) -> None:
        """Raises StateError when one of its processes, or the job, has ended."""

    @abstractmethod
    def read_topics(self) -> tuple[str, ...]:
        """Returns the topics that the group reads: those of the input, and what the engine sends itself."""

    @abstractmethod
    def pids(self) -> dict[str, int]:
        """Returns the process ids, by what each process is."""

    @abstractmethod
    def stop(self) -> None:
        """Ends all processes; may be called at any time."""


def all_taken_in(admin: AdminClient, client: Consumer, group: str, topics: tuple[str, ...]) -> bool:
    """Returns whether a group has committed the end of every partition of topics: what they hold is in the state.

    `client` is one of `impls.driver.arrivals.asking`.
    """
    found = admin.list_topics(timeout=_ASK_S).topics
    if any(topic not in found for topic in topics):
        return False
    places = [(topic, number) for topic in topics for number in found[topic].partitions]
    ends = end_offsets(client, places)
    wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(*place) for place in places])
    (asked,) = admin.list_consumer_group_offsets([wanted]).values()
    committed = {(at.topic, at.partition): at.offset for at in asked.result(_ASK_S).topic_partitions}
    return all(committed.get(place, -1) >= end for place, end in ends.items() if end > 0)


ENGINES = ("flink", "kafka-streams")
_HERE = Path(__file__).resolve().parent
_DEADLINE_S = 300.0


def jars_of(engine: str) -> tuple[Path, ...]:
    """Returns the jars of an engine of `ENGINES`, fetched first if they are not in the cache.

    Raises:
        UsageError: as `harness.setup.java.ensure_jars`.
    """
    return fetched(_HERE / "jars.xml", _HERE / "jars.sha256", megabytes=256)[engine]


def compiled(source: Path, jars: Sequence[Path]) -> Path:
    """Returns a jar with the classes of a Java file, compiled unless that has been done with the same jars.

    Raises:
        UsageError: there is no compiler, or it refuses the file.
    """
    names = " ".join(jar.name for jar in jars)
    digest = hashlib.sha256(source.read_bytes() + names.encode()).hexdigest()
    target = cache_folder() / f"{source.stem}-{digest[:16]}.jar"
    if not target.exists():
        javac = find_javac()
        with only_one(target.parent):
            if not target.exists():
                _compile(javac, source, jars, target)
    return target


def _compile(javac: Path, source: Path, jars: Sequence[Path], target: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="classes-") as folder:
        classes = os.pathsep.join(map(str, jars))
        command: list[str | Path] = [javac, "--release", "17", "-nowarn", "-d", folder, "-cp", classes, source]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_DEADLINE_S, check=False)
        if done.returncode:
            said = (done.stderr or done.stdout).strip().splitlines()[:1]
            raise UsageError(f"{source.name} cannot be compiled with {javac}: {said[0] if said else 'it said nothing'}")
        unfinished = target.with_suffix(".part")
        with zipfile.ZipFile(unfinished, "w") as jar:
            for path in sorted(Path(folder).rglob("*.class")):
                jar.write(path, path.relative_to(folder).as_posix())
        unfinished.replace(target)


_GRACE_S = 20.0
_LOG4J = """rootLogger.level=INFO
rootLogger.appenderRef.a.ref=A
appender.a.name=A
appender.a.type=Console
appender.a.layout.type=PatternLayout
appender.a.layout.pattern=%d{HH:mm:ss,SSS} %-5p %c{1} - %m%n
"""


class EngineProcess(guard.GuardedProgram):
    """A program of an engine, which may be killed and started again; its output is in `log`."""

    def __init__(self, name: str, log: Path):
        """Prepares a process; its name is for people."""
        super().__init__(log.parent, log.name)
        self.name = name
        self._lock = threading.RLock()  # whoever looks at a process that is being replaced waits

    def run(self, command: Sequence[str | Path], files: Mapping[Path, str] | None = None) -> None:
        """Writes files and starts a command; raises UsageError where that cannot be."""
        try:
            self.log.parent.mkdir(parents=True, exist_ok=True)
            for path, text in (files or {}).items():
                path.write_text(text)
            with self.log.open("ab") as log:
                self._process = guard.spawn(command, stdout=log, stderr=log, grace_s=_GRACE_S)
        except OSError as error:
            raise UsageError(f"{self.name} cannot be started: {error}.") from error

    def killed(self, start: Callable[[], None]) -> int:
        """Kills it with -9, has it started at once, as whoever deploys it would, and returns its id of before."""
        with self._lock:
            assert self._process is not None, "a process runs before it is killed"
            pid = self._process.pid
            os.kill(pid, signal.SIGKILL)
            self._process.stop()  # closes the pipe to its guard too
            start()
            return pid

    def check(self) -> None:
        """Raises StateError when it has ended."""
        with self._lock:
            if self._process is None or (code := self._process.poll()) is not None:
                told = "has not been started" if self._process is None else f"has ended (exit code {code})"
                raise StateError(f"{self.name} {told}: {self.last_words()}; its log is {self.log}.")


class JavaProcess(EngineProcess):
    """A class of some jars, run as a program."""

    def __init__(self, name: str, jars: Sequence[Path], log: Path, options: Sequence[str] = ()):
        """Prepares a process: its name is for people, `options` are those of the JVM."""
        super().__init__(name, log)
        self._jars, self._options = jars, list(options)

    def start(self, program: str, arguments: Sequence[str | Path]) -> None:
        """Starts the class `program`; raises UsageError when no process can be made."""
        path = os.pathsep.join(map(str, self._jars))
        logging = self.log.with_suffix(".log4j.properties")
        command = [use_java(), *self._options, f"-Dlog4j.configurationFile={logging}", "-cp", path, program, *arguments]
        self.run(command, {logging: _LOG4J})

    def replace(self, program: str, arguments: Sequence[str | Path]) -> int:
        """Kills it and starts the class again, see `killed`."""
        return self.killed(lambda: self.start(program, arguments))


_ANSWER_DEADLINE_S = 60.0
_SAID = 500


class RestError(StateError):
    """The engine refused a request; `code` is that of HTTP."""

    def __init__(self, message: str, code: int):
        super().__init__(message)
        self.code = code


class Rest:
    """Asks at http://HOST:PORT; every method raises RestError for a refusal, StateError when nobody answers."""

    def __init__(self, host: str, port: int):
        self.port = port
        self.url = f"http://{host}:{port}"

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Returns the answer's JSON to a request with a JSON body, or with none."""
        data = None if body is None else json.dumps(body).encode()
        return self._sent(urllib.request.Request(self.url + path, data, _JSON, method=method))

    def upload(self, path: str, name: str, data: bytes) -> Any:
        """Returns the answer's JSON to a POST of a file, as a form would send it."""
        mark = b"----rescale"
        head = f'Content-Disposition: form-data; name="jarfile"; filename="{name}"\r\n'.encode()
        kind = b"Content-Type: application/x-java-archive\r\n\r\n"
        body = b"--" + mark + b"\r\n" + head + kind + data + b"\r\n--" + mark + b"--\r\n"
        form = {"Content-Type": f"multipart/form-data; boundary={mark.decode()}"}
        return self._sent(urllib.request.Request(self.url + path, body, form))

    def _sent(self, request: urllib.request.Request) -> Any:
        what = f"{request.get_method()} {request.full_url}"
        try:
            with urllib.request.urlopen(request, timeout=_ANSWER_DEADLINE_S) as answer:
                return json.loads(answer.read() or b"{}")
        except urllib.error.HTTPError as error:
            said = " ".join(error.read().decode(errors="replace").split())
            raise RestError(f"{what} was refused ({error.code}): {said[:_SAID]}", error.code) from error
        except (OSError, ValueError) as error:
            raise StateError(f"{what} has no answer: {error}.") from error


_JSON = {"Content-Type": "application/json"}
