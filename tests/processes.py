"""Processes that tests start: what one leaves running, because it failed, ends with it and fails no later one."""

import subprocess
from collections.abc import Sequence
from typing import Any

__all__ = ["end_all", "spawn"]

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
