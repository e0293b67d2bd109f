"""Builds what is published: the source distribution and the wheel."""

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from harness.files import ROOT
from impls.errors import UsageError

__all__ = ["build", "print_built"]

_SOURCE = """
import sys, setuptools.build_meta as backend
notes = {"--global-option": ["egg_info", "--egg-base", sys.argv[1]]}  # else last time's list of files counts
print(backend.build_sdist(sys.argv[1], notes))
"""


def build(output: Path) -> tuple[Path, Path]:
    """Builds the source distribution and, from what is in it, the wheel; returns their paths (sdist, wheel).

    The backend is the one installed here, so that nothing is fetched.

    Raises:
        UsageError: it cannot be built.
    """
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="dist-") as name:
        folder = Path(name)
        source = folder / _ran([sys.executable, "-c", _SOURCE, folder], ROOT).splitlines()[-1]
        wheel = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index", "--quiet"]
        _ran([*wheel, "--wheel-dir", folder, source], folder)
        [built] = folder.glob("*.whl")
        return _moved(source, output), _moved(built, output)


def _moved(path: Path, folder: Path) -> Path:
    target = folder.resolve() / path.name
    target.write_bytes(path.read_bytes())
    return target


def _ran(command: Sequence[str | Path], where: Path) -> str:
    done = subprocess.run(command, cwd=where, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip() or "it said nothing").splitlines()
        raise UsageError(f"The package cannot be built: {said[-1]}")
    return done.stdout


def print_built(output: str) -> int:
    """Builds both, prints their paths, and returns the exit code 0."""
    for path in build(Path(output)):
        sys.stdout.write(f"{path}\n")
    return 0
