"""The files of this program's own Python, such that they run from any folder of another host.

A virtual environment points at the Python that it was made with, which another host need not have. What is taken here
is that Python itself: the program, the standard library, and the shared libraries that both need, without the C
library's. A Python finds its standard library beside itself, so it may lie anywhere; a launcher tells it where its
shared libraries are.
"""

import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from impls.errors import UsageError

__all__ = ["LAUNCHER", "SHARED", "VERSION", "interpreter_files", "packages_folder"]

VERSION = f"python{sys.version_info.major}.{sys.version_info.minor}"
SHARED = "lib/shared"
LAUNCHER = f"""\
#!/bin/sh
# Runs this environment's own Python, wherever the environment lies.
here=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd -P)
export LD_LIBRARY_PATH="$here/{SHARED}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"
exec "$here/bin/{VERSION}" "$@"
"""
_DEADLINE_S = 30.0
_LEFT_OUT = re.compile(
    r"(^|/)(test|tests|idlelib|tkinter|turtledemo|ensurepip|lib2to3|pydoc_data|site-packages|dist-packages|config-[^/]*)/"
    r"|(^|/)lib-dynload/(_?test|_ctypes_test|xx|_?tkinter|readline|_curses|nis|ossaudiodev)[^/]*$"
    r"|\.opt-\d\.pyc$|(^|/)(sitecustomize|usercustomize)\.py$"
)
# Every Linux has these, and they fit only its own kernel and loader.
_C_LIBRARY = re.compile(r"(ld-linux|linux-vdso|lib(c|m|dl|rt|pthread|util|resolv|anl|nsl|BrokenLocale)\.so)")


def packages_folder() -> str:
    """Returns where an environment has its packages, relative to it."""
    return f"lib/{VERSION}/site-packages"


def interpreter_files() -> Iterator[tuple[Path, str]]:
    """Yields (file, its place in the environment) for this program's Python, without a package.

    Raises:
        UsageError: this is not Linux, or its shared libraries cannot be told.
    """
    if sys.platform != "linux":
        raise UsageError("An environment holds the Python that packs it: pack it on Linux, as that of the executors.")
    program, library = Path(sys._base_executable).resolve(), Path(sysconfig.get_path("stdlib"))  # type: ignore[attr-defined]
    yield program, f"bin/{VERSION}"
    linked = [program]
    for path in sorted(library.rglob("*")):
        name = path.relative_to(library).as_posix()
        if _LEFT_OUT.search(name) or not path.is_file():
            continue
        yield path, f"lib/{VERSION}/{name}"
        if path.suffix == ".so":
            linked.append(path)
    for name, path in sorted(_shared(linked).items()):
        yield path, f"{SHARED}/{name}"


def _shared(linked: list[Path]) -> dict[str, Path]:
    """Returns name -> file of the shared libraries that these files need beside the C library."""
    try:
        told = subprocess.run(
            ["ldd", *linked], capture_output=True, text=True, timeout=_DEADLINE_S, check=False
        ).stdout  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(f"The program ldd, which tells what Python needs, does not run: {error}.") from error
    needed = {name: Path(path) for name, path in re.findall(r"^\s*(\S+) => (/\S+) \(", told, re.MULTILINE)}
    return {name: path for name, path in needed.items() if not _C_LIBRARY.match(name)}
