"""Reads, from Linux, what the machine's processors did and who used them; sums in microseconds since the boot."""

import os
from collections.abc import Iterable
from pathlib import Path

__all__ = ["CpuReader", "own_ticks"]

_TICK_US = 1_000_000 // os.sysconf("SC_CLK_TCK")
_GROUPS, _KERNEL = Path("/sys/fs/cgroup"), Path("/proc")


class CpuReader:
    """read() gives the sums of now; their differences over time are what `harness.measure.taken` judges.

    Args:
        root_pid: the process whose descendants are the run's processes, itself included.
        whole: whether all of the run is below that process; if not (a broker or a Spark master that somebody else has
            started may be on this machine), what other processes use is not known.
    """

    def __init__(self, root_pid: int, *, whole: bool = True):
        self._root, self._whole = root_pid, whole
        self._throttle = _throttle_file()

    def read(self) -> dict[str, int] | None:
        """Returns steal, idle, used (by all), own and throttled in microseconds; what is not known is left out.

        None where the system is not Linux or hides its counters.
        """
        try:
            fields = [int(word) for word in (_KERNEL / "stat").read_text().split("\n", 1)[0].split()[1:9]]
            user, nice, system, idle, waiting, irq, softirq, steal = fields
            own = own_ticks(_processes(), self._root)
        except (OSError, ValueError):
            return None
        used = user + nice + system + irq + softirq
        ticks = {"steal": steal, "idle": idle + waiting, "own": own}
        if self._whole:
            ticks["used"] = used
        out = {name: number * _TICK_US for name, number in ticks.items()}
        if self._throttle is not None and (throttled := _throttled_us(self._throttle)) is not None:
            out["throttled"] = throttled
        return out


def _processes() -> Iterable[tuple[int, int, int]]:
    """Yields (process, parent, ticks used, ended and awaited children included) of all processes that can be seen."""
    for folder in _KERNEL.iterdir():
        if folder.name.isdecimal():
            try:
                fields = (folder / "stat").read_bytes().rpartition(b")")[2].split()
            except OSError:
                continue
            yield int(folder.name), int(fields[1]), sum(map(int, fields[11:15]))


def own_ticks(processes: Iterable[tuple[int, int, int]], root: int) -> int:
    """Returns the ticks of a process and all its descendants, from (process, parent, ticks) of every process."""
    used: dict[int, int] = {}
    children: dict[int, list[int]] = {}
    for pid, parent, ticks in processes:
        used[pid] = ticks
        children.setdefault(parent, []).append(pid)
    total, left = 0, [root]
    while left:
        pid = left.pop()
        total += used.get(pid, 0)
        left += children.get(pid, [])
    return total


def _throttle_file() -> Path | None:
    """Returns cpu.stat of this process's control group, of version 2 or 1; the root's where a container hides it."""
    try:
        lines = [line.split(":", 2) for line in (_KERNEL / "self" / "cgroup").read_text().splitlines()]
    except OSError:
        return None
    for _, names, path in lines:
        if names == "" or "cpu" in names.split(","):
            folder = _GROUPS / names
            for file in (folder / path.lstrip("/") / "cpu.stat", folder / "cpu.stat"):
                if file.exists():
                    return file
    return None


def _throttled_us(file: Path) -> int | None:
    try:
        pairs = dict(line.split() for line in file.read_text().splitlines())
    except (OSError, ValueError):
        return None
    if "throttled_usec" in pairs:
        return int(pairs["throttled_usec"])
    return int(pairs["throttled_time"]) // 1000 if "throttled_time" in pairs else None
