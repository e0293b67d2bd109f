"""Makes the virtual environment from the lock file; `inv` runs this with any Python, so it needs nothing installed."""

import argparse
import fcntl
import os
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_STAMP = ".complete"
_LOG = "install.log"
_BUILD = "build.cfg"
_BUILT = {"pyspark"}  # has no wheel
_STORED = "[bdist_wheel]\ncompression = stored\n"  # pyspark is built here: 450 MB of jars gain nothing by compression


def ensure(folder: Path, lock: Path, stamp: str) -> None:
    """Makes `folder` an environment with exactly what `lock` names; returns at once if it bears the stamp.

    The stamp is written last: an installation that was cut off is begun again from an empty folder.

    Raises:
        SystemExit: with one sentence; nothing was changed that is not an environment.
    """
    with _only_one(folder.parent):
        if _stamped(folder) == stamp:
            return
        if folder.exists() and any(folder.iterdir()) and not (folder / "pyvenv.cfg").is_file():
            raise SystemExit(f"{folder} holds other files and is no virtual environment: name another in RESCALE_VENV.")
        sys.stderr.write(f"Installing the dependencies into {folder}, once (under a minute).\n")
        _create(folder)
        _install(folder, lock)
        _write(folder / _STAMP, stamp)


def _stamped(folder: Path) -> str | None:
    try:
        return (folder / _STAMP).read_text().strip() if os.access(folder / "bin" / "python", os.X_OK) else None
    except OSError:
        return None


@contextmanager
def _only_one(parent: Path) -> Iterator[None]:
    """Holds a lock on the folder, which ends with the process and leaves no file behind."""
    parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(parent, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _create(folder: Path) -> None:
    """Makes an empty environment; what marks the folder as one is there first and throughout."""
    mark = folder / "pyvenv.cfg"
    folder.mkdir(parents=True, exist_ok=True)
    mark.touch()
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path != mark:
            path.unlink()
    try:
        venv.create(folder, with_pip=True)
    except subprocess.CalledProcessError as error:
        raise SystemExit(
            f"{sys.executable} cannot make a virtual environment with pip: install its venv package "
            "(on Debian python3-venv), or set RESCALE_PYTHON to another Python."
        ) from error


def _install(folder: Path, lock: Path) -> None:
    """Runs two pips at a time, one for the packages that are built here and one for all others: each uses one core."""
    command: list[str | Path] = [
        folder / "bin" / "python", "-m", "pip", "install", "--disable-pip-version-check", "--no-input",
        "--no-deps", "--no-compile", "--require-hashes", "-r",  # Python compiles what is imported: 30 s less
    ]  # fmt: skip
    (folder / _BUILD).write_text(_STORED)
    environ = os.environ | {"DIST_EXTRA_CONFIG": str(folder / _BUILD)}
    with (folder / _LOG).open("ab") as log:
        pips = [
            subprocess.Popen([*command, part], stdout=log, stderr=log, env=environ) for part in _parts(folder, lock)
        ]
        try:
            codes = [pip.wait() for pip in pips]
        except BaseException:
            for pip in pips:
                pip.kill()
            raise
    if any(codes):
        lines = [line for line in (folder / _LOG).read_text(errors="replace").splitlines() if line.startswith("ERROR")]
        why = f": {lines[-1].removeprefix('ERROR:').strip()}" if lines else ""
        raise SystemExit(f"The dependencies could not be installed{why} (log: {folder / _LOG}); run again when mended.")


def _parts(folder: Path, lock: Path) -> list[Path]:
    """Writes the lock's requirements, those of `_BUILT` apart from the others, and returns the files that have any."""
    blocks = re.split(r"^(?=[\w-])", lock.read_text(), flags=re.MULTILINE)[1:]  # each begins with its name
    built = [block for block in blocks if block.partition("==")[0] in _BUILT]
    parts = {"built.txt": built, "others.txt": [block for block in blocks if block not in built]}
    for name, requirements in parts.items():
        (folder / name).write_text("".join(requirements))
    return [folder / name for name, requirements in parts.items() if requirements]


def _write(path: Path, text: str) -> None:
    new = path.with_suffix(".new")
    new.write_text(text)
    new.rename(path)


def main(arguments: list[str]) -> int:
    """Does what `inv` asks and returns the exit code: 2 with one sentence when it cannot."""
    parser = argparse.ArgumentParser(description="Make the virtual environment.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("lock", type=Path)
    parser.add_argument("stamp")
    options = parser.parse_args(arguments)
    try:
        ensure(options.folder.absolute(), options.lock, options.stamp)
    except (SystemExit, OSError, subprocess.SubprocessError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
