"""Processes that tests start: what one leaves running, because it failed, ends with it and fails no later one."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from harness.lab.processes import VARIABLE

__all__ = ["end_all", "spawn", "working_on"]

_started: list["subprocess.Popen[Any]"] = []


def spawn(command: Sequence[object], **how: Any) -> "subprocess.Popen[Any]":
    """Starts a process, as `subprocess.Popen` does."""
    process = subprocess.Popen([str(word) for word in command], **how)
    _started.append(process)
    return process


def end_all() -> None:
    """Kills what still runs of the processes started, and closes their pipes."""
    while _started:
        with _started.pop() as process:
            process.kill()
            process.wait()  # its pipes are at their end before they are closed: a thread may read them


def working_on(folder: Path) -> list[psutil.Process]:
    """Returns the processes that name a folder in their command line or look for an armed fault in it."""
    found = []
    for process in psutil.process_iter():
        try:
            words = [*process.cmdline(), process.environ().get(VARIABLE, "")]
        except psutil.Error:  # it has ended meanwhile, or is another user's
            continue
        if process.pid != os.getpid() and any(str(folder) in word for word in words):
            found.append(process)
    return found
