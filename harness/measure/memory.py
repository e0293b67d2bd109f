"""Samples the memory of a run's processes by role, five times a second, and its CPU time, into memory.jsonl.

A process that has vanished has neither memory nor children and raises nothing.
"""

import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from generators.clock import now_us
from harness.files import JsonLines
from harness.measure.cpu import CpuReader
from harness.measure.hlog import Entry

PERIOD_S = 0.2
_LOOK_AGAIN = 5  # samples between two looks at who there is and what uses the CPU; a look reads many files
_STOP_DEADLINE_S = 5.0
_KIB = 1024
_EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"

_LINUX = sys.platform == "linux"

BESIDE = ("broker", "generator")
Provider = Callable[[], int | None]
Memory = tuple[int, int]  # resident bytes, and those of them that are not mapped files


def memory_of(pid: int) -> Memory | None:
    """Returns (resident bytes, resident bytes that are not mapped files), None for a process that is gone."""
    return _linux_memory(pid) if _LINUX else _other_memory(pid)


def _linux_memory(pid: int) -> Memory | None:
    try:
        status = Path(f"/proc/{pid}/status").read_bytes()
    except OSError:
        return None
    rss, anon = _field(status, b"\nVmRSS:"), _field(status, b"\nRssAnon:")
    return None if rss is None else (rss, rss if anon is None else anon)  # a zombie has no VmRSS


def _field(status: bytes, name: bytes) -> int | None:
    start = status.find(name)
    return None if start < 0 else int(status[start + len(name) :].split(None, 1)[0]) * _KIB


def _other_memory(pid: int) -> Memory | None:
    try:
        process = psutil.Process(pid)
        rss = int(process.memory_info().rss)
    except psutil.Error:
        return None
    try:
        return rss, int(process.memory_full_info().uss)
    except psutil.Error:
        return rss, rss


def children(pid: int) -> list[int]:
    """Returns the process ids of a process's children, of all its threads."""
    if not _LINUX:
        try:
            return [child.pid for child in psutil.Process(pid).children()]
        except psutil.Error:
            return []
    out: list[int] = []
    try:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            out += _children_of_thread(thread)
    except OSError:
        pass
    return out


def _children_of_thread(thread: Path) -> list[int]:
    try:
        return [int(number) for number in (thread / "children").read_bytes().split()]
    except OSError:
        return []


def command_line(pid: int) -> str:
    """Returns a process's command line, empty for a process that is gone."""
    try:
        return " ".join(psutil.Process(pid).cmdline())
    except psutil.Error:
        return ""


def find_jvm(driver_pid: int) -> int | None:
    """Returns the Spark JVM among a process's children, None if there is none."""
    return next((pid for pid in children(driver_pid) if "org.apache.spark" in command_line(pid)), None)


def executors_of(application: str) -> list[int]:
    """Returns the executors of a Spark application on a cluster that run on this machine."""
    found = ((process.pid, process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"]))
    return [pid for pid, line in found if application in line and _EXECUTOR in line]


class PythonWorkers:
    """The Python workers of Spark JVMs: their Python children (a daemon, or workers without one) and their forks."""

    def __init__(self) -> None:
        self._parents: list[int] = []

    def look(self, jvms: Iterable[int]) -> None:
        """Looks again for the JVMs' Python children."""
        found = [child for jvm in jvms for child in children(jvm)]
        lines = {pid: command_line(pid) for pid in found}  # a fork that has not begun its own program is still the JVM
        self._parents = [pid for pid, line in lines.items() if "pyspark" in line and "org.apache.spark" not in line]

    def pids(self) -> list[int]:
        """Returns the process ids, forks since the last look included."""
        return [*self._parents, *(fork for parent in self._parents for fork in children(parent))]

    def memory(self) -> list[Memory]:
        """Returns the memory of each, those that have vanished left out."""
        return [found for pid in self.pids() if (found := memory_of(pid)) is not None]


class MemorySampler:
    """Writes a line per sample while it is entered; `with MemorySampler(...)` stops it in any case.

    Roles are broker, driver, jvm, generator, worker (the sum of Spark's Python processes), worker_max (the largest of
    them) and, on a cluster, executor (the sum of its JVMs); a role without a living process is left out of the line. It
    never raises for one that vanishes.
    """

    def __init__(
        self,
        path: Path,
        *,
        broker_pid: int | None = None,
        generator_pid: int | None = None,
        driver_pid: int | None = None,
        roles: Mapping[str, Provider] | None = None,
        executors: Callable[[], list[int]] = list,
        whole: bool = True,
        period_s: float = PERIOD_S,
    ):
        """Prepares a sampler.

        Args:
            path: file to append to.
            broker_pid: process of the broker, None for one that somebody else runs.
            generator_pid: process of the generator.
            driver_pid: process of the driver, this one by default; its child that runs Spark is the JVM.
            roles: further roles, or others in place of the above: functions that return a process id or None.
            executors: returns the process ids of the cluster's executors on this machine; none in local mode.
            whole: whether all of the run is below the driver, see `harness.measure.cpu.CpuReader`.
            period_s: seconds between samples.
        """
        driver = os.getpid() if driver_pid is None else driver_pid
        self._providers: dict[str, Provider] = {
            "broker": lambda: broker_pid,
            "driver": lambda: driver,
            "generator": lambda: generator_pid,
            "jvm": lambda: find_jvm(driver),
            **(roles or {}),
        }
        self._path, self._period_s = path, period_s
        self._cpu = CpuReader(driver, whole=whole)
        self._pids: dict[str, int | None] = {}
        self._find_executors, self._executors = executors, list[int]()
        self._workers = PythonWorkers()
        self._taken = 0
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="memory-sampler", daemon=True)

    def __enter__(self) -> "MemorySampler":
        self._file = JsonLines(self._path)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join(_STOP_DEADLINE_S)
        self._file.close()

    def _run(self) -> None:
        while not self._ending.is_set():
            cpu = self._cpu.read(self._apart()) if self._taken % _LOOK_AGAIN == 0 else None
            self._file.write({"at_us": now_us(), "roles": self.sample(), **({"cpu": cpu} if cpu else {})})
            self._ending.wait(self._period_s)

    def sample(self) -> dict[str, dict[str, int]]:
        """Returns {role: {"rss": bytes, "anon": bytes}} of now."""
        if self._taken % _LOOK_AGAIN == 0:
            self._look()
        self._taken += 1
        out: dict[str, dict[str, int]] = {}
        for role, pid in self._pids.items():
            found = None if pid is None else memory_of(pid)
            if found is not None:
                out[role] = _named(found)
        workers = self._workers.memory()
        if workers:
            out["worker"] = _named(_sum(workers))
            out["worker_max"] = _named((max(rss for rss, _ in workers), max(anon for _, anon in workers)))
        if executors := [found for pid in self._executors if (found := memory_of(pid)) is not None]:
            out["executor"] = _named(_sum(executors))
        return out

    def _apart(self) -> dict[str, int]:
        """Returns the processes that are beside the engine, whose CPU time is told apart from the engine's."""
        pids = {role: self._providers[role]() for role in BESIDE}
        return {role: pid for role, pid in pids.items() if pid is not None}

    def _look(self) -> None:
        self._pids = {role: provider() for role, provider in self._providers.items()}
        self._executors, jvm = self._find_executors(), self._pids["jvm"]
        self._workers.look([*self._executors, *([] if jvm is None else [jvm])])


def _sum(several: Sequence[Memory]) -> Memory:
    return sum(rss for rss, _ in several), sum(anon for _, anon in several)


def _named(memory: Memory) -> dict[str, int]:
    return {"rss": memory[0], "anon": memory[1]}


def peaks(lines: Iterable[dict[str, Any]], kind: str = "rss") -> dict[str, int]:
    """Returns the highest bytes of each role over the samples of memory.jsonl; `kind` is rss or anon."""
    out: dict[str, int] = {}
    for line in lines:
        for role, found in line["roles"].items():
            out[role] = max(out.get(role, 0), int(found[kind]))
    return out


def memory_entries(lines: Sequence[dict[str, Any]], epochs: Iterable[dict[str, Any]]) -> Iterator[Entry]:
    """Yields a histogram entry per epoch and role of resident memory in KiB; epochs between two samples have none."""
    times = np.array([line["at_us"] for line in lines], dtype=np.int64)
    order = np.argsort(times, kind="stable")
    for epoch in epochs:
        begin, end = epoch["begin_us"], epoch["end_us"]
        inside = order[np.searchsorted(times[order], begin) : np.searchsorted(times[order], end)]
        samples = [lines[i]["roles"] for i in inside.tolist()]
        for role in sorted({role for sample in samples for role in sample}):
            values = np.array([sample[role]["rss"] // _KIB for sample in samples if role in sample], np.int64)
            yield Entry(role, begin, end, values, np.ones(len(values), np.int64))
