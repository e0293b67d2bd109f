"""What a run needs of another engine, whichever it is."""

import hashlib
import os
import subprocess
import tempfile
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from harness.setup.java import cache_folder, fetched, find_javac, only_one
from impls.driver.arrivals import end_offsets
from impls.errors import UsageError

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
    """

    bootstrap: str
    topics: tuple[str, ...]
    results: str
    group: str
    most_workers: int
    folder: Path


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
        command: list[str | Path] = [
            javac,
            "--release",
            "17",
            "-nowarn",
            "-d",
            folder,
            "-cp",
            os.pathsep.join(map(str, jars)),
            source,
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_DEADLINE_S, check=False)
        if done.returncode:
            said = (done.stderr or done.stdout).strip().splitlines()[:1]
            raise UsageError(f"{source.name} cannot be compiled with {javac}: {said[0] if said else 'it said nothing'}")
        unfinished = target.with_suffix(".part")
        with zipfile.ZipFile(unfinished, "w") as jar:
            for path in sorted(Path(folder).rglob("*.class")):
                jar.write(path, path.relative_to(folder).as_posix())
        unfinished.replace(target)
