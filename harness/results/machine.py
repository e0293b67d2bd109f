"""The machine and the versions that a result was measured with."""

import os
import platform
import re
import socket
import subprocess
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

from harness.files import ROOT
from harness.measure.cpu import cores
from harness.setup.java import find_java, read_sums
from impls.errors import UsageError

_LIBRARIES = (
    "confluent-kafka",
    "duckdb",
    "hdrhistogram",
    "kafka-python",
    "lmdb",
    "numpy",
    "pandas",
    "pyarrow",
    "pyspark",
    "scipy",
    "xxhash",
)
_DEADLINE_S = 30.0


def describe_machine(seed: int) -> dict[str, Any]:
    """Returns commit, dirty, seed, host, cores, memory, system, processor and versions; what is unknown says so.

    Outside a git checkout the commit is "unknown" and dirty is true, as nothing shows that the code is unchanged.
    """
    return {**_code(), "seed": seed, **hardware(), "versions": dict(_versions())}


def _output(*command: str | Path) -> str | None:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_DEADLINE_S, check=True, cwd=ROOT, errors="replace"
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout + done.stderr


def _code() -> dict[str, Any]:
    if packed := os.environ.get("RESCALE_COMMIT"):  # in an image, which is made of a commit and has no repository
        return {"commit": packed, "dirty": packed == "unknown"}
    top = _output("git", "rev-parse", "--show-toplevel", "HEAD")
    status = _output("git", "status", "--porcelain")
    if top is None or status is None or Path(top.split("\n")[0]).resolve() != ROOT:
        return {"commit": "unknown", "dirty": True}
    return {"commit": top.split("\n")[1], "dirty": bool(status.strip())}


def commits() -> int:
    """Returns how many commits lead to this one, itself included; 0 outside a git checkout."""
    return int(_output("git", "rev-list", "--count", "HEAD") or 0)


def shallow_commit() -> str:
    """Returns the hash of the commit of a shallow clone, in which the commits before it are not; "" elsewhere."""
    shallow, commit = (
        (_output("git", "rev-parse", what) or "").strip() for what in ("--is-shallow-repository", "HEAD")
    )
    return commit if shallow == "true" else ""


@cache
def hardware() -> dict[str, Any]:
    """Returns host, system, processor, the cores that this process may use, and memory in bytes."""
    return {
        "host": socket.gethostname(),
        "os": f"{platform.system()} {platform.release()}",
        "architecture": platform.machine(),
        "cpu": _processor(),
        "cores": len(cores()),
        "memory_bytes": int(psutil.virtual_memory().total),
    }


def _processor() -> str:
    try:
        model = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        model = None
    if model:
        return model[1].strip()
    named = _output("sysctl", "-n", "machdep.cpu.brand_string")
    return (named or platform.processor() or "unknown").strip()


@cache
def _versions() -> tuple[tuple[str, str], ...]:
    libraries = [(name, _installed(name)) for name in _LIBRARIES]
    return (("python", platform.python_version()), ("java", _java()), ("kafka", _kafka()), *libraries)


def _installed(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "unknown"


def _java() -> str:
    try:
        words = _output(find_java(), "-version") or ""
    except UsageError:
        return "unknown"
    found = re.search(r'version "([^"]+)"', words)
    return found[1] if found else "unknown"


def _kafka() -> str:
    """Returns the version of the embedded broker, as its jar is named."""
    found = [match[1] for name in read_sums() if (match := re.search(r"broker/kafka_[\d.]+-(.+)\.jar$", name))]
    return found[0] if found else "unknown"
