"""Packs what an executor needs into one archive: this Python, the libraries of a step as they are locked, and the code.

The archive comes from what is installed here, so it has the same versions and needs no network. It has two parts, which
follow each other as two gzip members of one tar file: Python and libraries, packed once for these versions, and the
code, packed once per state of the code.

A virtual environment points at the Python that it was made with, which another host need not have. What is taken here
is that Python itself: the program, the standard library, and the shared libraries that both need, without the C
library's. A Python finds its standard library beside itself, so it may lie anywhere; a launcher tells it where its
shared libraries are.
"""

import gzip
import hashlib
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from compileall import compile_file
from importlib.util import cache_from_source
from io import BytesIO
from pathlib import Path

from rich.console import Console

from harness.files import ROOT
from harness.setup.java import cache_folder, only_one
from impls.errors import UsageError
from impls.spark.readiness import LIBRARIES
from impls.spark.shipping import Archive, check_archive

VERSION = f"python{sys.version_info.major}.{sys.version_info.minor}"
_SHARED = "lib/shared"
_LAUNCHER = f"""\
#!/bin/sh
# Runs this environment's own Python, wherever the environment lies.
here=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd -P)
export LD_LIBRARY_PATH="$here/{_SHARED}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"
exec "$here/bin/{VERSION}" "$@"
"""
_DEADLINE_S = 30.0
_NOT_TAKEN = re.compile(
    r"(^|/)(test|tests|idlelib|tkinter|turtledemo|ensurepip|lib2to3|pydoc_data|site-packages|dist-packages|config-[^/]*)/"
    r"|(^|/)lib-dynload/(_?test|_ctypes_test|xx|_?tkinter|readline|_curses|nis|ossaudiodev)[^/]*$"
    r"|\.opt-\d\.pyc$|(^|/)(sitecustomize|usercustomize)\.py$"
)
# Every Linux has these, and they fit only its own kernel and loader.
_C_LIBRARY = re.compile(r"(ld-linux|linux-vdso|lib(c|m|dl|rt|pthread|util|resolv|anl|nsl|BrokenLocale)\.so)")


def packages_folder() -> str:
    """Returns where an environment has its packages, relative to it."""
    return f"lib/{VERSION}/site-packages"


def _interpreter_files() -> Iterator[tuple[Path, str]]:
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
        if _NOT_TAKEN.search(name) or not path.is_file():
            continue
        yield path, f"lib/{VERSION}/{name}"
        if path.suffix == ".so":
            linked.append(path)
    for name, path in sorted(_shared(linked).items()):
        yield path, f"{_SHARED}/{name}"


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


_CODE = ("impls", "generators", "harness", "plots")
_LEVEL = 3  # 6 takes twice the time for 3 % less
_KEPT_S = 86_400.0  # a session may still hand out an archive of an earlier state of the code
_LEFT_OUT = re.compile(r"(^|/)(tests|include)/|^pyspark/(jars|python/lib|bin|sbin|examples|data|licenses)/|^\.\./|^/")
_REQUIRED = re.compile(r"[A-Za-z0-9._-]+")


def pack(also: Sequence[str] = ()) -> Path:
    """Returns the archive for `spark.archives`, packed first unless the cache has it for these versions and this code.

    Args:
        also: installed distributions that a user's operators need, packed with what they require.

    Raises:
        UsageError: a distribution is not installed, or the archive cannot be written.
    """
    cache = cache_folder()
    distributions = closure([*LIBRARIES.values(), "pyspark", *also])
    versions = [f"{distribution.name}=={distribution.version}" for distribution in distributions]
    libraries = cache / f"libraries-{_digest(_HERE, sys.version, *versions)}.part"
    code = list(_code_files())
    archive = cache / f"environment-{libraries.stem.partition('-')[2]}-{_digest([path for path, _ in code])}.tar.gz"
    with only_one(cache):
        try:
            if not archive.is_file():
                if not libraries.is_file():
                    _say()
                    _write(libraries, _library_files(distributions), parts=[], last=False)
                _write(archive, code, parts=[libraries], last=True)
            os.utime(archive)
            _clear(cache, libraries, archive)
        except OSError as error:
            raise UsageError(f"The environment cannot be packed in {cache}: {error.strerror or error}.") from error
    return archive


def archive_of(text: str) -> Archive:
    """Returns what --archive names: a file or URI, nothing for "none", for "auto" a function that packs one.

    Raises:
        UsageError: there is no such file.
    """
    if text in {"none", "auto"}:
        return pack if text == "auto" else None
    check_archive(text)
    return text


def print_packed(also: str) -> int:
    """Packs the environment, prints its size and, as the last line, its path; returns the exit code."""
    begin = time.monotonic()
    archive = pack([name.strip() for name in also.split(",") if name.strip()])
    sys.stdout.write(f"{archive.stat().st_size / 1e6:.0f} MB, {time.monotonic() - begin:.1f} s\n{archive}\n")
    return 0


_HERE = (Path(__file__),)


def _say() -> None:
    Console(stderr=True).print("Packing Python and the libraries for the executors, once for these versions (20 s).")


def _digest(files: Iterable[Path], *words: str) -> str:
    """Returns 12 digits that differ when a file's content or a word does."""
    total = hashlib.sha256("\0".join(words).encode())
    for path in files:
        total.update(path.as_posix().encode() + hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()[:12]


def _code_files() -> Iterator[tuple[Path, str]]:
    for package in _CODE:
        for path in sorted((ROOT / package).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                yield path, f"{packages_folder()}/{path.relative_to(ROOT).as_posix()}"


def _library_files(distributions: Iterable[importlib.metadata.Distribution]) -> Iterator[tuple[Path, str]]:
    """Yields (file, its place in the environment) of Python and of what an executor imports."""
    yield from _interpreter_files()
    for distribution in distributions:
        if distribution.files is None:
            raise UsageError(f"{distribution.name} was installed without a list of its files: install it with pip.")
        for file in distribution.files:
            path = Path(str(distribution.locate_file(file)))
            if file.suffix == ".pyc" or _LEFT_OUT.search(file.as_posix()) or not path.is_file():
                continue
            place = Path(packages_folder(), file)
            yield path, place.as_posix()
            if file.suffix == ".py" and compile_file(path, quiet=2):  # pip may have left it to the first import
                compiled = Path(cache_from_source(path))
                yield compiled, (place.parent / "__pycache__" / compiled.name).as_posix()


def closure(names: Iterable[str]) -> list[importlib.metadata.Distribution]:
    """Returns the distributions and what they require, each once; a requirement that is not installed is not needed."""
    distributions: dict[str, importlib.metadata.Distribution] = {}
    wanted = [(name, True) for name in names]
    while wanted:
        name, needed = wanted.pop()
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError as error:
            if needed:
                raise UsageError(f"{name} is not installed in {sys.prefix}, so it cannot be packed.") from error
            continue
        if distribution.name.lower() not in distributions:
            distributions[distribution.name.lower()] = distribution
            required = [text for text in distribution.requires or [] if "extra ==" not in text]
            wanted += [(match[0], False) for text in required if (match := _REQUIRED.match(text))]
    return [distributions[name] for name in sorted(distributions)]


def _write(target: Path, files: Iterable[tuple[Path, str]], *, parts: list[Path], last: bool) -> None:
    """Writes parts and then the files as one more member; only the last part ends the tar file."""
    with tempfile.TemporaryDirectory(prefix="partial-", dir=target.parent) as folder:
        new = Path(folder) / target.name
        with new.open("wb") as out:
            for part in parts:
                with part.open("rb") as source:
                    shutil.copyfileobj(source, out)
            with gzip.GzipFile(fileobj=out, mode="wb", compresslevel=_LEVEL, filename="", mtime=0) as packed:
                tar = tarfile.TarFile(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT, dereference=True)
                _add_all(tar, files, launcher=not last)
                if last:
                    tar.close()
        new.rename(target)


def _add_all(tar: tarfile.TarFile, files: Iterable[tuple[Path, str]], *, launcher: bool) -> None:
    for path, name in files:
        tar.add(path, name, recursive=False, filter=_anonymous)
    if launcher:
        _add_launcher(tar)


def _anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Leaves the time, by which Python knows that a compiled file fits its source, and drops who owns the file."""
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mtime = int(entry.mtime)
    entry.mode = 0o755 if entry.mode & 0o100 else 0o644
    return entry


def _add_launcher(tar: tarfile.TarFile) -> None:
    entry = tarfile.TarInfo("bin/python")
    entry.size, entry.mode = len(_LAUNCHER.encode()), 0o755
    tar.addfile(entry, BytesIO(_LAUNCHER.encode()))
    links = {"bin/python3": "python", "lib/python3/dist-packages": f"../{VERSION}/site-packages"}  # Debian's name
    for name, target in links.items():
        entry = tarfile.TarInfo(name)
        entry.type, entry.linkname = tarfile.SYMTYPE, target
        tar.addfile(entry)


def _clear(cache: Path, *kept: Path) -> None:
    """Removes archives that nobody has asked for during the day before the last one of those kept was asked for."""
    oldest = max(path.stat().st_mtime for path in kept) - _KEPT_S
    for pattern in ("libraries-*.part", "environment-*.tar.gz"):
        for path in cache.glob(pattern):
            if path not in kept and path.stat().st_mtime < oldest:
                path.unlink()
