"""The count as a job on a Flink cluster of this machine, rescaled by Flink's scheduler or with a savepoint."""

import contextlib
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.lab.engines.engine import Engine, JavaProcess, Job, Rest, RestError, compiled, jars_of
from harness.lab.ports import LOOPBACK, free_ports
from harness.lab.waiting import wait_for
from impls.errors import StateError
from impls.mechanisms.flink.baseline import Flink

JOB_MANAGER = "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint"
TASK_MANAGER = "org.apache.flink.runtime.taskexecutor.TaskManagerRunner"
_OPENED = (
    "java.lang", "java.net", "java.io", "java.nio", "sun.nio.ch", "java.lang.reflect", "java.text", "java.time",
    "java.util", "java.util.concurrent", "java.util.concurrent.atomic", "java.util.concurrent.locks",
)  # fmt: skip
_JOB_MB, _FRAMEWORK_MB, _OFF_HEAP_MB, _NETWORK_MB, _META_MB, _OVERHEAD_MB = 1_024, 128, 128, 128, 160, 256
_MANAGED_MB = 1_024  # of RocksDB; the heap has no managed memory


def _managed_mb(flink: Flink) -> int:
    return _MANAGED_MB if flink.backend == "rocksdb" else 0


def _task_mb(flink: Flink) -> int:
    """Returns the heap of tasks: what is left of the process's memory."""
    rest = _FRAMEWORK_MB + _OFF_HEAP_MB + _NETWORK_MB + _META_MB + _OVERHEAD_MB + _managed_mb(flink)
    return max(flink.memory_mb - rest, 128)


def config_text(flink: Flink, folder: Path, *, rpc: int, rest: int, slots: int) -> str:
    """Returns config.yaml of a cluster with its files in a folder.

    Args:
        flink: the baseline's options.
        folder: for checkpoints and what is temporary.
        rpc: port of the job manager.
        rest: port of its HTTP interface.
        slots: tasks that it can run at once.
    """
    settings: Mapping[str, object] = {
        "jobmanager.rpc.address": LOOPBACK, "jobmanager.rpc.port": rpc, "jobmanager.bind-host": LOOPBACK,
        "rest.address": LOOPBACK, "rest.bind-address": LOOPBACK, "rest.port": rest, "rest.bind-port": rest,
        "taskmanager.host": LOOPBACK, "taskmanager.bind-host": LOOPBACK, "taskmanager.numberOfTaskSlots": slots,
        "jobmanager.memory.heap.size": f"{_JOB_MB}m",
        "taskmanager.cpu.cores": float(slots), "taskmanager.memory.task.heap.size": f"{_task_mb(flink)}m",
        "taskmanager.memory.task.off-heap.size": "0m",
        "taskmanager.memory.framework.heap.size": f"{_FRAMEWORK_MB}m",
        "taskmanager.memory.framework.off-heap.size": f"{_OFF_HEAP_MB}m",
        "taskmanager.memory.network.min": f"{_NETWORK_MB}m", "taskmanager.memory.network.max": f"{_NETWORK_MB}m",
        "taskmanager.memory.managed.size": f"{_managed_mb(flink)}m",
        "taskmanager.memory.jvm-metaspace.size": f"{_META_MB}m",
        "taskmanager.memory.jvm-overhead.min": f"{_OVERHEAD_MB}m",
        "taskmanager.memory.jvm-overhead.max": f"{_OVERHEAD_MB}m",
        "io.tmp.dirs": folder / "tmp", "web.upload.dir": folder / "upload",
        "web.refresh-interval": 250,  # else the view of a job is up to 3 s old
        "jobmanager.scheduler": "adaptive" if flink.adaptive else "default",
        "jobmanager.adaptive-scheduler.executing.cooldown-after-rescaling": f"{flink.cooldown_s}s",
        "state.backend.type": flink.backend, "execution.checkpointing.incremental": "true",
        "execution.checkpointing.interval": f"{flink.checkpoint_s}s",
        "execution.checkpointing.storage": "filesystem", "execution.checkpointing.dir": f"file://{folder}/checkpoints",
        "execution.checkpointing.snapshot-compression": str(flink.compression == "on").lower(),
        "execution.checkpointing.externalized-checkpoint-retention": "DELETE_ON_CANCELLATION",
    }  # fmt: skip
    return "".join(f"{name}: {value}\n" for name, value in settings.items())


def jvm_options(flink: Flink, program: str) -> list[str]:
    """Returns the options of the JVM of one of the two programs."""
    opened = [f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in _OPENED]
    if program == JOB_MANAGER:
        return [*opened, f"-Xmx{_JOB_MB}m", f"-XX:MaxMetaspaceSize={2 * _META_MB}m"]
    heap, direct = _FRAMEWORK_MB + _task_mb(flink), _OFF_HEAP_MB + _NETWORK_MB
    memory = [f"-Xmx{heap}m", f"-XX:MaxDirectMemorySize={direct}m", f"-XX:MaxMetaspaceSize={_META_MB}m"]
    return [*opened, "-XX:+UseG1GC", *memory]


_READY_DEADLINE_S = 120.0


class _FlinkCluster:
    """start(), then ask it by `rest`, then stop()."""

    def __init__(self, flink: Flink, folder: Path, slots: int):
        rpc, port = free_ports(LOOPBACK, 2)
        self._arguments: list[str | Path] = ["--configDir", folder / "conf"]
        self.rest, self._slots = Rest(LOOPBACK, port), slots
        conf = folder / "conf"
        for path in (conf, folder / "tmp", folder / "upload"):
            path.mkdir(parents=True, exist_ok=True)
        (conf / "config.yaml").write_text(config_text(flink, folder, rpc=rpc, rest=port, slots=slots))
        jars = jars_of("flink")
        self._programs = {
            program: JavaProcess(f"Flink's {what}", jars, folder / f"{what.replace(' ', '-')}.log",
                                 jvm_options(flink, program))
            for program, what in ((JOB_MANAGER, "job manager"), (TASK_MANAGER, "task manager"))
        }  # fmt: skip

    def start(self) -> None:
        """Returns when all slots are there; raises StateError when they are not in two minutes."""
        for program, process in self._programs.items():
            process.start(program, self._arguments)
        wait_for(self._has_slots, "Flink's slots", _READY_DEADLINE_S, tend=self.check)

    def _has_slots(self) -> bool:
        with contextlib.suppress(StateError):  # nobody answers yet
            return bool(self.rest.ask("GET", "/overview")["slots-total"] == self._slots)
        return False

    def upload(self, jar: Path) -> str:
        """Gives the cluster a jar and returns the name by which it has it."""
        told: Any = self.rest.upload("/jars/upload", jar.name, jar.read_bytes())
        return str(told["filename"]).rsplit("/", 1)[-1]

    def kill_worker(self) -> int:
        """Kills the task manager, starts it again, and returns its id of before."""
        return self._programs[TASK_MANAGER].replace(TASK_MANAGER, self._arguments)

    def check(self) -> None:
        """Raises StateError when one of the processes has ended."""
        for process in self._programs.values():
            process.check()

    def pids(self) -> dict[str, int]:
        """Returns the ids of the processes."""
        return {process.name: process.pid for process in self._programs.values() if process.pid is not None}

    def stop(self) -> None:
        """Ends both."""
        for process in reversed(self._programs.values()):
            process.stop()


_COUNT, _NEXMARK = "FlinkCount", "FlinkNexmark"
_KEYED = "keyed"  # begins the names of the tasks that have state
_SOURCES = 2
_DEADLINE_S = 600.0
_PAUSE_S = 0.2
_OVER = ("FAILED", "CANCELED", "FINISHED", "SUSPENDED")


def requirements(vertices: Sequence[Mapping[str, Any]], workers: int) -> dict[str, Any]:
    """Returns what the adaptive scheduler is asked for: tasks with state as many as workers, the sources as they are.

    >>> requirements([{"id": "a", "name": "Source: source", "parallelism": 2}, {"id": "b", "name": "keyed"}], 4)["b"]
    {'parallelism': {'lowerBound': 1, 'upperBound': 4}}
    """
    wanted = {v["id"]: workers if v["name"].startswith(_KEYED) else int(v["parallelism"]) for v in vertices}
    return {id_: {"parallelism": {"lowerBound": 1, "upperBound": number}} for id_, number in wanted.items()}


def running_with(job: Mapping[str, Any], workers: int) -> bool:
    """Returns whether all tasks of a job run, those with state as many as workers."""
    keyed = [v for v in job["vertices"] if v["name"].startswith(_KEYED)]
    running = all(v["tasks"].get("RUNNING", 0) == v["parallelism"] for v in job["vertices"])
    return running and all(v["parallelism"] == workers for v in keyed)


class _NoSavepointError(StateError):
    """A savepoint was asked for and has failed."""


class FlinkEngine(Engine):
    """See `Engine`."""

    def __init__(self, given: Flink, job: Job):
        self.name, self.stops = "Flink", not given.adaptive
        self._given, self._job = given, job
        self._cluster = _FlinkCluster(given, job.folder, max(_SOURCES, job.most_workers + 1))
        self._program = _NEXMARK if job.query else _COUNT
        self._jar, self._id = "", ""

    def start(self, workers: int) -> None:
        """Starts the cluster and the job."""
        jar = compiled(Path(__file__).resolve().parent / f"{self._program}.java", jars_of("flink"))
        self._cluster.start()
        self._jar = self._cluster.upload(jar)
        self._run(workers)

    def _run(self, workers: int, savepoint: str | None = None) -> None:
        own = self._job
        query = [own.query, own.disorder_ms] if own.query else []
        numbers = [self._given.buffer_ms, _SOURCES, workers]
        arguments = [own.bootstrap, own.group, own.results, *numbers, *query, *own.topics]
        entry = f"rescale.{self._program}"
        body: dict[str, Any] = {"entryClass": entry, "programArgsList": list(map(str, arguments))}
        if savepoint is not None:
            body |= {"savepointPath": savepoint, "claimMode": "CLAIM"}
        self._id = self._ask("POST", f"/jars/{self._jar}/run", body)["jobid"]
        self._await_running(workers)

    def _await_running(self, workers: int) -> None:
        def running() -> bool:
            return running_with(self._read_job(), workers)

        wait_for(running, f"Flink to run with {workers} workers", _DEADLINE_S, tend=self.check)

    def rescale(self, workers: int) -> None:
        """Asks the adaptive scheduler, or stops the job with a savepoint and starts it from there."""
        if self._given.adaptive:
            wanted = requirements(self._read_job()["vertices"], workers)
            self._ask("PUT", f"/jobs/{self._id}/resource-requirements", wanted)
            self._await_running(workers)
            return
        job, self._id = self._id, ""  # whose end is no failure from here on
        self._run(workers, self._stopped(job))

    def _stopped(self, job: str) -> str:
        """Stops a job and returns where its savepoint is; one that fails, as its worker has died, is made again."""
        end = time.monotonic() + _DEADLINE_S
        while True:
            try:
                location = self._savepoint(job)
            except (RestError, _NoSavepointError):  # the job may just be starting again
                self._cluster.check()
                if time.monotonic() > end:
                    raise
                time.sleep(_PAUSE_S)
                continue
            wait_for(lambda: self._status(job) == "FINISHED", "Flink's job to end", _DEADLINE_S)
            return location

    def _savepoint(self, job: str) -> str:
        """Asks once for a job's end with a savepoint and returns where that is; raises _NoSavepointError for none."""
        body = {"targetDirectory": f"file://{self._job.folder}/savepoints", "drain": False, "formatType": "NATIVE"}
        request = self._ask("POST", f"/jobs/{job}/stop", body)["request-id"]
        told: dict[str, Any] = {}

        def completed() -> bool:
            told.update(self._ask("GET", f"/jobs/{job}/savepoints/{request}"))
            return bool(told["status"]["id"] == "COMPLETED")

        wait_for(completed, "Flink to answer about a savepoint", _DEADLINE_S, tend=self._cluster.check)
        found: dict[str, Any] = told["operation"]
        if "location" not in found:
            raise _NoSavepointError(f"Flink made no savepoint: {found.get('failure-cause', {}).get('class')}.")
        return str(found["location"])

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        return self._cluster.rest.ask(method, path, body)

    def _read_job(self) -> dict[str, Any]:
        found: dict[str, Any] = self._ask("GET", f"/jobs/{self._id}")
        return found

    def _status(self, job: str) -> str:
        return str(self._ask("GET", f"/jobs/{job}/status")["status"])

    def kill_worker(self) -> int:
        """Kills the task manager and starts it again; the job goes on from its last checkpoint."""
        return self._cluster.kill_worker()

    def check(self) -> None:
        """Raises StateError when a process, or the job, has ended."""
        self._cluster.check()
        if (job := self._id) and (status := self._status(job)) in _OVER:
            raise StateError(f"Flink's job is {status}: its log is in {self._job.folder}.")

    def read_topics(self) -> tuple[str, ...]:
        """Returns the topics of the input."""
        return self._job.topics

    def pids(self) -> dict[str, int]:
        """Returns the ids of job manager and task manager."""
        return self._cluster.pids()

    def stop(self) -> None:
        """Ends the cluster."""
        self._cluster.stop()
