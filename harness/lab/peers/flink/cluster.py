"""A Flink cluster of this machine: a job manager and a task manager, and what it is asked by HTTP."""

import contextlib
from pathlib import Path
from typing import Any

from harness.lab.peers.flink.settings import JOB_MANAGER, TASK_MANAGER, config_text, jvm_options
from harness.lab.peers.parts import jars_of
from harness.lab.peers.process import JavaProcess
from harness.lab.peers.rest import Rest
from harness.lab.ports import LOOPBACK, free_ports
from harness.lab.waiting import wait_for
from impls.errors import StateError
from impls.mechanisms.flink.baseline import Flink

__all__ = ["FlinkCluster"]

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
