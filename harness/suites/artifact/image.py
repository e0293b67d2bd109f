"""Builds the image: the context is the commit's files in app/, and in jars/ the jars that this machine has fetched."""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from harness.files import ROOT
from harness.setup.jars import ensure_jars, jars_folder
from impls.errors import UsageError

__all__ = ["build", "docker", "run"]

_IMAGE = "rescale-bench"
_INSIDE = "/app/results"


def docker(*words: str) -> int:
    """Runs docker with its output shown and returns the exit code; raises UsageError where no engine answers."""
    _check_engine()
    return subprocess.run(["docker", *words], check=False, cwd=ROOT).returncode


def _check_engine() -> None:
    if shutil.which("docker") is None:
        raise UsageError("docker is not installed: everything runs without it too, see the README.")
    if subprocess.run(["docker", "info"], capture_output=True, check=False).returncode:
        raise UsageError("No Docker engine answers: start one, or set DOCKER_HOST.")


def _ran(command: Sequence[str | Path], why: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["it said nothing"]
        raise UsageError(f"{why}: {said[-1]}")


@contextmanager
def _context(commit: str) -> Iterator[Path]:
    """Stages the build's context in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="rescale-image-") as name:
        folder, archive = Path(name), Path(name) / "source.tar"
        (folder / "app").mkdir()
        _ran(["git", "archive", "--output", archive, commit], "The commit's files cannot be listed")
        _ran(["tar", "-x", "-C", folder / "app", "-f", archive], "The commit's files cannot be unpacked")
        archive.unlink()
        ensure_jars()
        shutil.copytree(jars_folder(), folder / "jars")
        yield folder


def build(*, base: str, network: str, tag: str = _IMAGE, commit: str = "HEAD") -> int:
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
        given = {"BASE": base, "COMMIT": full, "JARS": jars_folder().name}
        arguments = [word for name, value in given.items() for word in ("--build-arg", f"{name}={value}")]
        dockerfile = str(folder / "app/docker/Dockerfile")
        return docker("build", *extra, *arguments, "--tag", tag, "--file", dockerfile, str(folder))


def run(words: Sequence[str], *, results: Path, network: str = "host", tag: str = _IMAGE) -> int:
    """Runs `./inv WORDS` in a container whose results appear in a folder here; returns its exit code.

    What it says of a path inside the container is printed as the path here.
    """
    results.mkdir(parents=True, exist_ok=True)
    results.chmod(0o777)  # the container's user is another one
    here = str(results.resolve())
    _check_engine()
    command = [
        "docker", "run", "--rm", "--init", "--network", network, "--shm-size", "1g", "--volume", f"{here}:{_INSIDE}",
        tag, *words,
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT) as container:
        with ThreadPoolExecutor(2) as pool:
            pool.submit(_pass_on, container.stdout, sys.stdout, here)
            pool.submit(_pass_on, container.stderr, sys.stderr, here)
        return container.wait()


def _pass_on(said: IO[str] | None, out: IO[str], here: str) -> None:
    for line in said or ():
        out.write(line.replace(_INSIDE, here))
        out.flush()
