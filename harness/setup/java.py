"""Java 17 or newer, and the jars that pyspark lacks, which are fetched once and kept in the user's cache folder."""

import fcntl
import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from harness import guard
from impls.errors import UsageError

_JAVA_MIN = 17
_ASK_DEADLINE_S = 30.0


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
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=_ASK_DEADLINE_S, check=False, errors="replace"
    )
    return done.stderr + done.stdout


def _major(words: str) -> int | None:
    """Reads what `java -version` prints: 1.8.0_402 is 8, 17.0.15 is 17, 24-ea is 24."""
    match = re.search(r'version "(?:1\.)?(\d+)', words)
    return int(match[1]) if match else None


def _candidates() -> list[Path]:
    home, found = os.environ.get("JAVA_HOME"), shutil.which("java")
    places = [Path(home) / "bin" / "java" if home else None, Path(found) if found else None]
    return list(dict.fromkeys(place for place in places if place is not None and place.exists()))


_HERE = Path(__file__).resolve().parent
_DEADLINE_S = 900.0
_MARKER = "verified.json"
_PARTIAL = "partial-"


@dataclass(frozen=True)
class JarPaths:
    """Jars by what they are for."""

    spark: tuple[Path, ...]
    broker: tuple[Path, ...]


def cache_folder() -> Path:
    """Returns the folder for what is fetched: RESCALE_CACHE, else rescale-bench in the user's cache folder."""
    if own := os.environ.get("RESCALE_CACHE"):
        return Path(own).expanduser().resolve()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rescale-bench"


def jars_folder(description: Path = _HERE / "jars.xml", sums: Path = _HERE / "jars.sha256") -> Path:
    """Returns where the jars are or will be; another list of jars is another folder."""
    digest = hashlib.sha256(description.read_bytes() + sums.read_bytes()).hexdigest()
    return cache_folder() / f"jars-{digest[:16]}"


def read_sums(sums: Path = _HERE / "jars.sha256") -> dict[str, str]:
    """Returns file name (`spark/…` or `broker/…`) -> sha256 from a file in sha256sum's format."""
    return {name: digest for digest, name in (line.split() for line in sums.read_text().splitlines())}


def ensure_jars(description: Path = _HERE / "jars.xml", sums: Path = _HERE / "jars.sha256") -> JarPaths:
    """Returns the jars, fetched first if they are not in the cache.

    A fetch goes to a folder of its own, which is renamed when every jar has the sum that the project knows: what a
    cut-off fetch leaves is never used, and the next one clears it away.

    Args:
        description: Ivy file with the configurations `spark` and `broker`.
        sums: the jars and their sha256.

    Raises:
        UsageError: no Java, no network, or a jar that is not the one expected.
    """
    found = fetched(description, sums, megabytes=54)
    return JarPaths(**{use: found.get(use, ()) for use in ("spark", "broker")})


def fetched(description: Path, sums: Path, *, megabytes: int) -> dict[str, tuple[Path, ...]]:
    """Returns the jars of each configuration of an Ivy file, fetched first if they are not there; see `ensure_jars`."""
    folder, expected = jars_folder(description, sums), read_sums(sums)
    if not _verified(folder, expected):
        with only_one(folder.parent):
            if not _verified(folder, expected):
                _fetch(folder, description, expected, megabytes)
    by_use: dict[str, tuple[Path, ...]] = {}
    for name in expected:
        use = name.partition("/")[0]
        by_use[use] = (*by_use.get(use, ()), folder / name)
    return by_use


def _verified(folder: Path, expected: dict[str, str]) -> bool:
    """Returns whether the folder was verified and every jar still has the size it had then."""
    try:
        sizes: dict[str, int] = json.loads((folder / _MARKER).read_text())
        return sizes.keys() == expected.keys() and all((folder / n).stat().st_size == size for n, size in sizes.items())
    except (OSError, ValueError):
        return False


@contextmanager
def only_one(cache: Path) -> Iterator[None]:
    """Holds the cache's lock, which ends with the process, and clears what earlier holders left half done."""
    try:
        cache.mkdir(parents=True, exist_ok=True)
        lock = (cache / ".lock").open("w")
    except OSError as error:
        raise UsageError(f"The cache folder {cache} cannot be used ({error.strerror}): set RESCALE_CACHE.") from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for left in cache.glob(f"{_PARTIAL}*"):
            shutil.rmtree(left, ignore_errors=True)
        yield


def _fetch(folder: Path, description: Path, expected: dict[str, str], megabytes: int) -> None:
    log = folder.parent / "fetch.log"
    partial = Path(tempfile.mkdtemp(prefix=_PARTIAL, dir=folder.parent))
    try:
        uses = sorted({name.partition("/")[0] for name in expected})
        _run_ivy(partial, description, uses, log, megabytes)
        _check(partial / "jars", expected, log)
        marker = {name: (partial / "jars" / name).stat().st_size for name in expected}
        (partial / "jars" / _MARKER).write_text(json.dumps(marker))
        shutil.rmtree(folder, ignore_errors=True)
        (partial / "jars").rename(folder)
    except OSError as error:
        raise UsageError(f"The jars cannot be written to {folder.parent}: {error.strerror or error}.") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _run_ivy(partial: Path, description: Path, uses: Sequence[str], log: Path, megabytes: int) -> None:
    settings = os.environ.get("RESCALE_IVY_SETTINGS")
    if settings and not Path(settings).is_file():
        raise UsageError(f"RESCALE_IVY_SETTINGS names {settings}, which is not a file.")
    command: list[str | Path] = [
        find_java(), "-jar", _ivy(), *(["-settings", settings] if settings else []), "-ivy", description,
        "-cache", partial / "ivy", "-confs", *uses,
        "-retrieve", f"{partial}/jars/[conf]/[artifact]-[revision].[ext]",
    ]  # fmt: skip
    with log.open("wb") as output, guard.spawn(command, stdout=output, stderr=output) as ivy:
        code = _wait(ivy, partial / "ivy", megabytes)
    if code != 0:
        raise UsageError(
            f"The jars could not be fetched: see {log}, and run again with a network, or with RESCALE_IVY_SETTINGS "
            "naming an ivysettings.xml of your own repository."
        )


def _wait(ivy: guard.GuardedProcess, downloads: Path, megabytes: int) -> int | None:
    """Returns the exit code, None after the deadline; the terminal shows how much has come."""
    deadline, terminal = time.monotonic() + _DEADLINE_S, sys.stderr.isatty()
    sys.stderr.write(f"Fetching the jars, once ({megabytes} MB)." + ("" if terminal else "\n"))
    try:
        while time.monotonic() < deadline:
            try:
                return ivy.wait(0.5)
            except subprocess.TimeoutExpired:
                size = sum(path.stat().st_size for path in list(downloads.glob("**/*.jar*")) if path.exists())
                if terminal:
                    sys.stderr.write(f"\rFetching the jars, once: {size / 1e6:.0f} of {megabytes} MB ")
                    sys.stderr.flush()
    finally:
        if terminal:
            sys.stderr.write("\n")
    return None


def _ivy() -> Path:
    spec = importlib.util.find_spec("pyspark")
    found = sorted(Path(spec.origin).parent.glob("jars/ivy-*.jar")) if spec is not None and spec.origin else []
    if not found:
        raise UsageError(f"pyspark with its jars is not installed for {sys.executable}: install it.")
    return found[-1]


def _check(folder: Path, expected: dict[str, str], log: Path) -> None:
    for name, digest in expected.items():
        jar = folder / name
        if not jar.is_file():
            raise UsageError(f"The jar {name} was not among those fetched: see {log}.")
        with jar.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != digest:
                raise UsageError(
                    f"The jar {name} is not the one that this project knows (its sha256 differs): see {log}."
                )
