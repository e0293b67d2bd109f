"""Memory and children of processes; a process that has vanished has none and raises nothing."""

import sys
from pathlib import Path

import psutil

__all__ = ["Memory", "children", "command_line", "memory_of"]

Memory = tuple[int, int]  # resident bytes, and those of them that are not mapped files
_LINUX = sys.platform == "linux"
_KIB = 1024


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
