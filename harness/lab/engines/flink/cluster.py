"""A Flink cluster of this machine: its settings, a job manager and a task manager, and what it is asked by HTTP."""

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.lab.engines.engine import jars_of
from harness.lab.engines.process import JavaProcess, Rest
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


def _managed_mb(given: Flink) -> int:
    return _MANAGED_MB if given.backend == "rocksdb" else 0


def _task_mb(given: Flink) -> int:
    """Returns the heap of tasks: what is left of the process's memory."""
    rest = _FRAMEWORK_MB + _OFF_HEAP_MB + _NETWORK_MB + _META_MB + _OVERHEAD_MB + _managed_mb(given)
    return max(given.memory_mb - rest, 128)


def config_text(given: Flink, folder: Path, *, rpc: int, rest: int, slots: int) -> str:
    """Returns config.yaml of a cluster with its files in a folder.

    Args:
        given: the baseline's options.
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
        "taskmanager.cpu.cores": float(slots), "taskmanager.memory.task.heap.size": f"{_task_mb(given)}m",
        "taskmanager.memory.task.off-heap.size": "0m",
        "taskmanager.memory.framework.heap.size": f"{_FRAMEWORK_MB}m",
        "taskmanager.memory.framework.off-heap.size": f"{_OFF_HEAP_MB}m",
        "taskmanager.memory.network.min": f"{_NETWORK_MB}m", "taskmanager.memory.network.max": f"{_NETWORK_MB}m",
        "taskmanager.memory.managed.size": f"{_managed_mb(given)}m",
        "taskmanager.memory.jvm-metaspace.size": f"{_META_MB}m",
        "taskmanager.memory.jvm-overhead.min": f"{_OVERHEAD_MB}m",
        "taskmanager.memory.jvm-overhead.max": f"{_OVERHEAD_MB}m",
        "io.tmp.dirs": folder / "tmp", "web.upload.dir": folder / "upload",
        "web.refresh-interval": 250,  # else the view of a job is up to 3 s old
        "jobmanager.scheduler": "adaptive" if given.adaptive else "default",
        "jobmanager.adaptive-scheduler.executing.cooldown-after-rescaling": f"{given.cooldown_s}s",
        "state.backend.type": given.backend, "execution.checkpointing.incremental": "true",
        "execution.checkpointing.interval": f"{given.checkpoint_s}s",
        "execution.checkpointing.storage": "filesystem", "execution.checkpointing.dir": f"file://{folder}/checkpoints",
        "execution.checkpointing.snapshot-compression": str(given.compression == "on").lower(),
        "execution.checkpointing.externalized-checkpoint-retention": "DELETE_ON_CANCELLATION",
    }  # fmt: skip
    return "".join(f"{name}: {value}\n" for name, value in settings.items())


def jvm_options(given: Flink, program: str) -> list[str]:
    """Returns the options of the JVM of one of the two programs."""
    opened = [f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in _OPENED]
    if program == JOB_MANAGER:
        return [*opened, f"-Xmx{_JOB_MB}m", f"-XX:MaxMetaspaceSize={2 * _META_MB}m"]
    heap, direct = _FRAMEWORK_MB + _task_mb(given), _OFF_HEAP_MB + _NETWORK_MB
    memory = [f"-Xmx{heap}m", f"-XX:MaxDirectMemorySize={direct}m", f"-XX:MaxMetaspaceSize={_META_MB}m"]
    return [*opened, "-XX:+UseG1GC", *memory]


_READY_DEADLINE_S = 120.0


class FlinkCluster:
    """start(), then ask it by `rest`, then stop()."""

    def __init__(self, given: Flink, folder: Path, slots: int):
        rpc, port = free_ports(LOOPBACK, 2)
        self._arguments: list[str | Path] = ["--configDir", folder / "conf"]
        self.rest, self._slots = Rest(LOOPBACK, port), slots
        conf = folder / "conf"
        for path in (conf, folder / "tmp", folder / "upload"):
            path.mkdir(parents=True, exist_ok=True)
        (conf / "config.yaml").write_text(config_text(given, folder, rpc=rpc, rest=port, slots=slots))
        jars = jars_of("flink")
        self._programs = {
            program: JavaProcess(f"Flink's {what}", jars, folder / f"{what.replace(' ', '-')}.log",
                                 jvm_options(given, program))
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
