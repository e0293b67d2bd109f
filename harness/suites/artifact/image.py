"""Builds the image: the context is the commit's files, with the jars that this machine has fetched."""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from harness.files import ROOT
from harness.setup.jars import ensure_jars, jars_folder
from impls.errors import UsageError

__all__ = ["IMAGE", "build", "docker", "run"]

IMAGE = "rescale-bench"


def docker(*words: str) -> int:
    """Runs docker with its output shown and returns the exit code; raises UsageError where no engine answers."""
    if shutil.which("docker") is None:
        raise UsageError("docker is not installed: everything runs without it too, see the README.")
    if subprocess.run(["docker", "info"], capture_output=True, check=False).returncode:
        raise UsageError("No Docker engine answers: start one, or set DOCKER_HOST.")
    return subprocess.run(["docker", *words], check=False, cwd=ROOT).returncode


def _ran(command: Sequence[str | Path], why: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["it said nothing"]
        raise UsageError(f"{why}: {said[-1]}")


@contextmanager
def _context(commit: str) -> Iterator[Path]:
    """Stages the build's context in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="rescale-image-") as name:
        folder = Path(name)
        archive = folder / "source.tar"
        _ran(["git", "archive", "--output", archive, commit], "The commit's files cannot be listed")
        _ran(["tar", "-x", "-C", folder, "-f", archive], "The commit's files cannot be unpacked")
        archive.unlink()
        ensure_jars()
        shutil.copytree(jars_folder(), folder / "jars")
        (folder / "jars.name").write_text(jars_folder().name)
        yield folder


def build(*, base: str, network: str, tag: str = IMAGE, commit: str = "HEAD") -> int:
    """Builds the image of a commit and returns docker's exit code.

    Args:
        base: the base image.
        network: docker's network for the build, "" for its default.
        tag: name of the image.
        commit: what is packed; uncommitted changes are not.

    Raises:
        UsageError: no engine answers, or something for the image cannot be fetched.
    """
    done = subprocess.run(["git", "rev-parse", commit], capture_output=True, text=True, check=False, cwd=ROOT)
    if done.returncode:
        raise UsageError("The image is made of a commit: this folder is no git repository.")
    full = done.stdout.strip()
    docker("version")
    with _context(full) as folder:
        extra = ["--network", network] if network else []
        arguments = ["--build-arg", f"BASE={base}", "--build-arg", f"COMMIT={full}"]
        return docker(
            "build", *extra, *arguments, "--tag", tag, "--file", str(folder / "docker/Dockerfile"), str(folder)
        )


def run(words: Sequence[str], *, results: Path, network: str = "host", tag: str = IMAGE) -> int:
    """Runs `./inv WORDS` in a container whose results appear in a folder here; returns its exit code."""
    results.mkdir(parents=True, exist_ok=True)
    results.chmod(0o777)  # the container's user is another one
    return docker(
        "run", "--rm", "--init", "--network", network, "--shm-size", "1g", "--volume",
        f"{results.resolve()}:/app/results", tag, *words,
    )  # fmt: skip
