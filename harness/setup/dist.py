"""Builds what is published, the source distribution and the wheel, and writes the lock files with their hashes.

requirements.lock is for whoever works on the project; requirements-run.lock has what a run needs, and
requirements-s3.lock the server of docker compose's profile `cluster`, in the same versions.
"""

import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path

from harness.files import ROOT
from impls.errors import UsageError

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


_OLDEST_PYTHON = "3.11"


def write_lock(root: Path, *, upgrade: bool = False) -> None:
    """Resolves pyproject.toml with uv, in a temporary environment, and replaces the lock files.

    Args:
        root: the repository.
        upgrade: take the newest versions allowed; else versions change only where pyproject.toml asks for it.

    Raises:
        UsageError: uv cannot be installed, or finds no solution.
    """
    with tempfile.TemporaryDirectory() as folder:
        python = Path(folder) / "bin" / "python"
        _run([sys.executable, "-m", "venv", folder], root)
        _run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "uv"], root)
        compile_ = [
            str(python), "-m", "uv", "pip", "compile", "pyproject.toml", "--universal", "--python-version",
            _OLDEST_PYTHON, "--generate-hashes", "--quiet", "--no-emit-index-url", "--no-emit-find-links",
            "--custom-compile-command", "./inv lock", *(["--upgrade"] if upgrade else []),
        ]  # fmt: skip
        _run([*compile_, "--all-extras", "--group", "dev", "--output-file", "requirements.lock"], root)
        part = ["--constraint", "requirements.lock", "--output-file"]
        _run([*compile_, "--extra", "bench", *part, "requirements-run.lock"], root)
        server = ["-" if word == "pyproject.toml" else word for word in compile_]  # else all dependencies come too
        _run([*server, *part, "requirements-s3.lock"], root, _extra(root, "s3"))


def _extra(root: Path, name: str) -> str:
    """Returns what an extra requires, a line each."""
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    return "\n".join(project["optional-dependencies"][name])


def _run(command: list[str], root: Path, said: str = "") -> None:
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False, input=said)
    if done.returncode:
        raise UsageError(f"The lock files were not written: {(done.stderr or done.stdout).strip()}")
