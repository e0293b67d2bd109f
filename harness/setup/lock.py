"""Writes requirements.lock: every dependency with its hashes, one file for all supported Pythons."""

import subprocess
import sys
import tempfile
from pathlib import Path

from impls.errors import UsageError

__all__ = ["write_lock"]

_OLDEST_PYTHON = "3.11"


def write_lock(root: Path, *, upgrade: bool = False) -> None:
    """Resolves pyproject.toml with uv, in a temporary environment, and replaces requirements.lock.

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
        _run(
            [
                str(python), "-m", "uv", "pip", "compile", "pyproject.toml", "--group", "dev", "--universal",
                "--python-version", _OLDEST_PYTHON, "--generate-hashes", "--quiet", "--no-emit-index-url",
                "--no-emit-find-links", "--custom-compile-command", "./inv lock", "--output-file", "requirements.lock",
                *(["--upgrade"] if upgrade else []),
            ],
            root,
        )  # fmt: skip


def _run(command: list[str], root: Path) -> None:
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if done.returncode:
        raise UsageError(f"requirements.lock was not written: {(done.stderr or done.stdout).strip()}")
