"""Java 17 or newer, from `JAVA_HOME` or from the search path."""

import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

from impls.errors import UsageError

_JAVA_MIN = 17
_DEADLINE_S = 30.0


def find_java() -> Path:
    """Returns the program `java` of a Java that is new enough: that of `JAVA_HOME`, else the first on the path.

    Raises:
        UsageError: there is none.
    """
    seen = []
    for java in _candidates():
        version = java_version(java)
        if version is not None and version >= _JAVA_MIN:
            return java
        seen.append(f"{java} is {f'Java {version}' if version else 'not one that runs'}")
    found = f" ({'; '.join(seen)})" if seen else ""
    raise UsageError(
        f"Java {_JAVA_MIN} or newer was not found{found}: install it (for example the package openjdk-17-jre-headless) "
        "or set JAVA_HOME to its folder."
    )


def find_javac() -> Path:
    """Returns the compiler of the Java that `find_java` finds, else the first on the path.

    Raises:
        UsageError: there is none, as where Java was installed to run programs only.
    """
    java, found = find_java(), shutil.which("javac")
    places = [java_home(java) / "bin" / "javac", *([Path(found)] if found else [])]
    for place in places:
        if place.exists():
            return place
    raise UsageError(
        f"{java} comes without a compiler, which is needed once for a program of this project's: install a JDK (for "
        "example the package openjdk-17-jdk-headless) or set JAVA_HOME to one."
    )


def use_java() -> Path:
    """Finds Java and sets `JAVA_HOME` for this process and those it starts, Spark's among them."""
    java = find_java()
    os.environ["JAVA_HOME"] = str(java_home(java))
    return java


def java_home(java: Path) -> Path:
    """Returns the folder that `JAVA_HOME` would name for a program `java`, as Java itself tells it."""
    match = re.search(r"^ *java\.home = (.+)$", _words_of(java), re.MULTILINE)
    return Path(match[1].strip()) if match else java.resolve().parents[1]


def java_version(java: Path) -> int | None:
    """Returns the major version of a program `java`, None when it does not run or names no version."""
    return _major(_words_of(java))


def _words_of(java: Path) -> str:
    """Returns what a program `java` says of itself, "" when it does not run; it is asked once, as that starts a JVM."""
    try:
        return _ask(java, java.stat().st_mtime_ns)
    except (OSError, subprocess.TimeoutExpired):
        return ""


@cache
def _ask(java: Path, _changed_ns: int) -> str:
    command = [str(java), "-XshowSettings:properties", "-version"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_DEADLINE_S, check=False, errors="replace")
    return done.stderr + done.stdout


def _major(words: str) -> int | None:
    """Reads what `java -version` prints: 1.8.0_402 is 8, 17.0.15 is 17, 24-ea is 24."""
    match = re.search(r'version "(?:1\.)?(\d+)', words)
    return int(match[1]) if match else None


def _candidates() -> list[Path]:
    home, found = os.environ.get("JAVA_HOME"), shutil.which("java")
    places = [Path(home) / "bin" / "java" if home else None, Path(found) if found else None]
    return list(dict.fromkeys(place for place in places if place is not None and place.exists()))
