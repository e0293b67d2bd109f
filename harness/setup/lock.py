"""Writes the lock files: every dependency with its hashes, one file for all supported Pythons.

requirements.lock is for whoever works on the project; requirements-run.lock has what a run needs, and
requirements-s3.lock the server of docker compose's profile `cluster`, in the same versions.
"""

import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from impls.errors import UsageError

__all__ = ["write_lock"]

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
