"""What this machine has of what the benchmark needs, and how to get what is missing."""

import importlib.metadata
import os
import platform
import shutil
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil
from rich.table import Table

from harness.setup.jars import cache_folder, jars_folder
from harness.setup.java import find_java, java_version
from impls.errors import UsageError

__all__ = ["CHECKS", "Requirement", "examine", "table"]

_DISK_GB_MIN = 5.0
_MEMORY_GB_MIN = 6.0
_SHM_MB_MIN = 64
_CORES_MIN = 2


@dataclass(frozen=True)
class Requirement:
    """One item: what was found, whether that is enough, whether it must be, and how to get it."""

    item: str
    found: str
    ok: bool
    remedy: str = ""
    needed: bool = True


def examine() -> list[Requirement]:
    """Looks at everything and returns the findings in the order of CHECKS; needs under a second and no network."""
    return [check() for check in CHECKS]


def table(findings: list[Requirement]) -> Table:
    """Returns the findings for the terminal."""
    result = Table("item", "found", "", "how to get it")
    for finding in findings:
        verdict = "ok" if finding.ok else "missing" if finding.needed else "optional"
        style = {"ok": "green", "missing": "red"}.get(verdict, "yellow")
        remedy = "" if finding.ok else finding.remedy
        result.add_row(finding.item, finding.found, f"[{style}]{verdict}[/]", remedy)
    return result


def _python() -> Requirement:
    return Requirement("Python", platform.python_version(), sys.version_info >= (3, 11), "install Python 3.11 or newer")


def _packages() -> Requirement:
    try:
        found = f"pyspark {importlib.metadata.version('pyspark')}"
    except importlib.metadata.PackageNotFoundError:
        return Requirement("packages", "no pyspark", ok=False, remedy="./inv installs them")
    return Requirement("packages", found, ok=True)


def _java() -> Requirement:
    try:
        java = find_java()
    except UsageError as error:
        return Requirement("Java", "none that is new enough", ok=False, remedy=str(error))
    return Requirement("Java", f"{java_version(java)} ({java})", ok=True)


def _jars() -> Requirement:
    folder = jars_folder()
    if folder.exists():
        return Requirement("jars", str(folder), ok=True)
    return Requirement("jars", "not yet", ok=False, remedy="the first run fetches them (54 MB)", needed=False)


def _disk() -> Requirement:
    place = next(path for path in [cache_folder(), *cache_folder().parents] if path.exists())
    free = min(shutil.disk_usage(path).free for path in (Path.cwd(), place)) / 1e9
    return Requirement("free disk", f"{free:.0f} GB", free >= _DISK_GB_MIN, f"free {_DISK_GB_MIN:.0f} GB")


def _cores() -> Requirement:
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return Requirement("cores", str(cores), cores >= _CORES_MIN, "latencies need two cores or more", needed=False)


def _memory() -> Requirement:
    free = psutil.virtual_memory().available / 1e9
    return Requirement(
        "free memory", f"{free:.1f} GB", free >= _MEMORY_GB_MIN, f"free {_MEMORY_GB_MIN:.0f} GB", needed=False
    )


def _shared_memory() -> Requirement:
    try:
        free = shutil.disk_usage("/dev/shm").free / 1e6
    except OSError:
        return Requirement("/dev/shm", "none", ok=False, remedy="state goes to the disk instead", needed=False)
    remedy = "in a container: --shm-size=1g; else state goes to the disk"
    return Requirement("/dev/shm", f"{free / 1e3:.1f} GB free", free >= _SHM_MB_MIN, remedy, needed=False)


def _port() -> Requirement:
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            return Requirement("free port", str(server.getsockname()[1]), ok=True)
    except OSError as error:
        return Requirement("free port", str(error.strerror), ok=False, remedy="allow listening on 127.0.0.1")


def _docker() -> Requirement:
    found = shutil.which("docker")
    return Requirement("docker", found or "none", found is not None, "only for the docker tasks", needed=False)


CHECKS: tuple[Callable[[], Requirement], ...] = (
    _python, _packages, _java, _jars, _disk, _cores, _memory, _shared_memory, _port, _docker,
)  # fmt: skip
