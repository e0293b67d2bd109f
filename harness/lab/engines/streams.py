"""The count as a Kafka Streams application, of which threads or instances come and go."""

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.lab.engines.engine import Engine, JavaProcess, Job, Rest, compiled, jars_of
from harness.lab.ports import LOOPBACK, free_ports
from harness.lab.waiting import wait_for
from impls.errors import StateError
from impls.mechanisms.kafka_streams.baseline import KafkaStreams

_SOURCE = Path(__file__).resolve().parent / "StreamsCount.java"
_PROGRAM = "rescale.StreamsCount"
_DEADLINE_S = 600.0
_COUNTS = "1_"  # begins the ids of the tasks that count: they are behind the repartition
_SHARE = 4  # partitions of the state for each of the most workers there will be


def threads_of(added: str, before: int, workers: int) -> list[int]:
    """Returns the threads of each instance: a rescale adds threads to the one there is, or an instance for the rest.

    >>> threads_of("threads", 2, 4), threads_of("instance", 2, 4), threads_of("instance", 2, 1)
    ([4], [2, 2], [1])
    """
    return [before, workers - before] if added == "instance" and workers > before else [workers]


def balanced(told: Sequence[Mapping[str, Any]], threads: Sequence[int], partitions: int) -> bool:
    """Returns whether instances run with so many threads each, and all tasks that count are on them, some on each.

    Args:
        told: what each instance says of itself.
        threads: of each instance.
        partitions: number of tasks that count.
    """
    if len(told) != len(threads) or any(one["state"] != "RUNNING" for one in told):
        return False
    found = [[t for t in one["threads"] if t["state"] in {"RUNNING", "STARTING"}] for one in told]
    counts = [sum(task.startswith(_COUNTS) for task in t["active"]) for one in found for t in one]
    return [len(one) for one in found] == list(threads) and sum(counts) == partitions and min(counts) > 0


class StreamsEngine(Engine):
    """See `Engine`."""

    def __init__(self, given: KafkaStreams, job: Job):
        self.name = "Kafka Streams"
        self._given, self._job = given, job
        self._partitions = _SHARE * job.most_workers
        self._instances: list[tuple[JavaProcess, Rest]] = []
        self._first, self._threads = 0, [0]  # of the first instance at its start, and of each instance as asked for

    def start(self, workers: int) -> None:
        """Starts one instance with a thread per worker."""
        self._first, self._threads = workers, [workers]
        self._begin(workers)
        self._await()

    def _begin(self, threads: int) -> None:
        """Starts an instance with a disk of its own."""
        number, (port,) = len(self._instances), free_ports(LOOPBACK)
        jars = jars_of("kafka-streams")
        every, log = [compiled(_SOURCE, jars), *jars], self._job.folder / f"instance-{number}.log"
        most = 2 if self._given.added == "instance" else 1  # instances that there can be
        process = JavaProcess("Kafka Streams", every, log, [f"-Xmx{self._given.memory_mb // most}m"])
        process.start(_PROGRAM, self._arguments(number, port, threads))
        self._instances.append((process, Rest(LOOPBACK, port)))

    def _arguments(self, number: int, port: int, threads: int) -> list[str]:
        job, folder = self._job, self._job.folder / f"instance-{number}"
        folder.mkdir(parents=True, exist_ok=True)
        numbers = [str(port), str(threads), str(self._partitions)]
        what = [str(folder), ",".join(job.topics), job.query or "count"]
        return [job.bootstrap, job.group, job.results, *numbers, *what, *self._settings()]

    def _settings(self) -> list[str]:
        given = self._given
        return [
            f"group.protocol={given.protocol}", f"processing.guarantee={given.guarantee}",
            f"commit.interval.ms={given.commit_ms}", "probing.rebalance.interval.ms=60000",
        ]  # fmt: skip

    def rescale(self, workers: int) -> None:
        """Adds or removes threads, or starts or ends the second instance."""
        self._threads = threads = threads_of(self._given.added, self._first, workers)
        if len(threads) > len(self._instances):
            self._begin(threads[-1])
        while len(threads) < len(self._instances):
            self._instances.pop()[0].stop()
        self._await()

    def kill_worker(self) -> int:
        """Kills the first instance and starts it again, with the threads that it is to have by now, on its disk."""
        process, rest = self._instances[0]
        return process.replace(_PROGRAM, self._arguments(0, rest.port, self._threads[0]))

    def _await(self) -> None:
        """Has the first instance take its number of threads, and waits until all run and have their share.

        An instance that is starting is left alone: of threads that are added then, the first ones never start (4.3).
        """
        threads = self._threads

        def there() -> bool:
            with contextlib.suppress(StateError):  # an instance that starts does not answer yet
                told = [rest.ask("GET", "/state") for _, rest in self._instances]
                if told[0]["state"] == "RUNNING" and len(told[0]["threads"]) != threads[0]:
                    self._instances[0][1].ask("POST", f"/threads/{threads[0]}")
                return balanced(told, threads, self._partitions)
            return False

        what = f"Kafka Streams to run with {sum(threads)} threads"
        wait_for(there, what, _DEADLINE_S, tend=self.check)

    def check(self) -> None:
        """Raises StateError when an instance has ended."""
        for process, _ in list(self._instances):
            process.check()

    def read_topics(self) -> tuple[str, ...]:
        """Returns the topics of the input, and the one that has their records by key."""
        return (*self._job.topics, f"{self._job.group}-by-key-repartition")

    def pids(self) -> dict[str, int]:
        """Returns the ids of the instances."""
        found = [(f"instance {number}", process.pid) for number, (process, _) in enumerate(self._instances)]
        return {name: pid for name, pid in found if pid is not None}

    def stop(self) -> None:
        """Ends all instances."""
        while self._instances:
            self._instances.pop()[0].stop()
