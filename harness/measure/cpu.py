"""Reads, from Linux, what the machine's processors did and who used them; sums in microseconds since the boot.

The machine is the processors that this process may use: under `taskset`, or in a container's set of them, the others
are as little of use to a run as those of another machine.

How much of a run's CPU time was taken away from it, and whether that makes the machine busy, follows from them.
"""

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any

BUSY = 0.1
_SECONDS_MIN = 2.0  # of samples: counters tick in hundredths of a second, and a second of them is mostly chance
_TICK_US = 1_000_000 // os.sysconf("SC_CLK_TCK")
_GROUPS, _KERNEL = Path("/sys/fs/cgroup"), Path("/proc")


class CpuReader:
    """read() gives the sums of now; their differences over time are what `taken` judges.

    Args:
        root_pid: the process whose descendants are the run's processes, itself included.
        whole: whether all of the run is below that process; if not (a broker or a Spark master that somebody else has
            started may be on this machine), what other processes use is not known.
    """

    def __init__(self, root_pid: int, *, whole: bool = True):
        self._root, self._whole = root_pid, whole
        self._throttle = _throttle_file()

    def read(self, apart: Mapping[str, int] = MappingProxyType({})) -> dict[str, int] | None:
        """Returns steal, idle, used (by all), own and throttled in microseconds; what is not known is left out.

        None where the system is not Linux or hides its counters. Of the processes in `apart`, by their roles, there is
        the part of `own` that is theirs and their descendants', under own_ROLE.
        """
        try:
            user, nice, system, idle, waiting, irq, softirq, steal = _fields((_KERNEL / "stat").read_text(), cores())
            own = own_ticks(_processes(), self._root, apart)
        except (OSError, ValueError):
            return None
        used = user + nice + system + irq + softirq
        ticks = {"steal": steal, "idle": idle + waiting, **own}
        if self._whole:
            ticks["used"] = used
        out = {name: number * _TICK_US for name, number in ticks.items()}
        if self._throttle is not None and (throttled := _throttled_us(self._throttle)) is not None:
            out["throttled"] = throttled
        return out


def cores() -> set[int]:
    """Returns the numbers of the processors that this process may use; all of them where the system does not say."""
    try:
        return os.sched_getaffinity(0)
    except AttributeError:  # not on Linux
        return set(range(os.cpu_count() or 1))


def quota() -> float | None:
    """Returns how many processors' time this process's control group may use at once, None where it is not bounded."""
    file = _throttle_file()
    if file is None:
        return None
    try:
        if (both := file.with_name("cpu.max")).exists():
            most, period = both.read_text().split()
        else:
            most, period = (file.with_name(f"cpu.cfs_{name}_us").read_text().strip() for name in ("quota", "period"))
        return int(most) / int(period) if int(most) > 0 else None
    except (OSError, ValueError):  # "max": no bound
        return None


def _fields(stat: str, numbers: Collection[int]) -> list[int]:
    """Returns the first eight sums of /proc/stat over some processors; over all where it does not tell them apart."""
    rows = [line.split() for line in stat.splitlines() if line.startswith("cpu")]
    own = [row for row in rows[1:] if int(row[0].removeprefix("cpu")) in numbers]
    chosen = own if len(own) == len(numbers) else rows[:1]
    return [sum(map(int, ticks)) for ticks in zip(*(row[1:9] for row in chosen), strict=True)]


def _processes() -> Iterable[tuple[int, int, int]]:
    """Yields (process, parent, ticks used, ended and awaited children included) of all processes that can be seen."""
    for folder in _KERNEL.iterdir():
        if folder.name.isdecimal():
            try:
                fields = (folder / "stat").read_bytes().rpartition(b")")[2].split()
            except OSError:
                continue
            yield int(folder.name), int(fields[1]), sum(map(int, fields[11:15]))


def own_ticks(
    processes: Iterable[tuple[int, int, int]], root: int, apart: Mapping[str, int] = MappingProxyType({})
) -> dict[str, int]:
    """Returns the ticks of a process and all its descendants as `own`, those of some of them under own_ROLE too.

    Args:
        processes: (process, parent, ticks) of every process.
        root: the process.
        apart: processes by role; of one that is no descendant nothing is returned.
    """
    used: dict[int, int] = {}
    children: dict[int, list[int]] = {}
    for pid, parent, ticks in processes:
        used[pid] = ticks
        children.setdefault(parent, []).append(pid)

    def below(pid: int) -> list[int]:
        out = [pid]
        for one in out:
            out += children.get(one, [])
        return out

    own = below(root)
    roles = {f"own_{role}": below(pid) for role, pid in apart.items() if pid in own}
    return {name: sum(used.get(pid, 0) for pid in pids) for name, pids in {"own": own, **roles}.items()}


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


@dataclass(frozen=True)
class Taken:
    """Shares of the CPU time that a run wanted: `share` is what it did not get, the others what that consists of.

    What it wanted is what its processes used plus what was taken, and taken was:
    - steal: time that the hypervisor gave to other machines while something here wanted to run;
    - others: time that processes other than the run's used, less the time in which processors were idle, second by
      second; what others use while there is idle time left takes nothing from the run;
    - throttled: time for which the run's control group was held back at its quota.
    A part that the system does not tell counts as 0. Between two samples, others and idle time are compared within
    these, and all are summed over the measured part of the run.
    """

    share: float
    steal: float
    others: float
    throttled: float

    def to_json(self) -> dict[str, float]:
        """Returns the shares, rounded to a tenth of a percent."""
        return {name: round(value, 3) for name, value in asdict(self).items()}


def _inside(samples: Sequence[dict[str, Any]], begin_us: int, end_us: int) -> list[dict[str, int]]:
    """Returns the sums of the samples within a time; none where they are too few or too close."""
    inside = [line for line in samples if line.get("cpu") and begin_us <= line["at_us"] <= end_us]
    if len(inside) < 2 or inside[-1]["at_us"] - inside[0]["at_us"] < _SECONDS_MIN * 1e6:
        return []
    return [line["cpu"] for line in inside]


def idle_share(samples: Sequence[dict[str, Any]], begin_us: int, end_us: int) -> float | None:
    """Returns the share of the machine's CPU time that nobody used, see `taken`; None where too little is known."""
    inside = _inside(samples, begin_us, end_us)
    if not inside or not all({"idle", "used", "steal"} <= set(sums) for sums in (inside[0], inside[-1])):
        return None
    idle, used, steal = (inside[-1][name] - inside[0][name] for name in ("idle", "used", "steal"))
    return idle / whole if (whole := idle + used + steal) > 0 else None


def taken(samples: Sequence[dict[str, Any]], begin_us: int, end_us: int) -> Taken | None:
    """Returns what was taken from a run in the part from `begin_us` to `end_us`; None where too little is known.

    Args:
        samples: lines of memory.jsonl; those with `cpu` have the sums of `CpuReader`, microseconds.
        begin_us: begin of the measured part, wall clock.
        end_us: its end.
    """
    own = steal = others = throttled = 0
    for before, after in pairwise(_inside(samples, begin_us, end_us)):
        spent = {name: after[name] - before.get(name, after[name]) for name in after}
        if spent["own"] < 0:  # a process of the run has vanished together with its sum
            continue
        own += spent["own"]
        steal += max(0, spent["steal"])
        throttled += max(0, spent.get("throttled", 0))
        others += max(0, spent.get("used", 0) - spent["own"] - max(0, spent["idle"]))
    wanted = own + steal + others + throttled
    if not wanted:
        return None
    return Taken(*((part / wanted) for part in (steal + others + throttled, steal, others, throttled)))


def machine(found: Taken | None) -> str:
    """Returns busy where more than a tenth of a run's CPU time was taken away, quiet where not, else unknown."""
    return "unknown" if found is None else "busy" if found.share > BUSY else "quiet"
