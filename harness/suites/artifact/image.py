"""Builds the images: the context is the commit's files in app/, and in jars/ the jars that this machine has fetched."""

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

IMAGE = "rescale-bench"
S3_SUFFIX = "-s3"  # after the image's name: that of a server of the S3 protocol
_INSIDE = "/app/results"


def docker(*words: str) -> int:
    """Runs docker with its output shown and returns the exit code; raises UsageError where no engine answers."""
    check_engine()
    return subprocess.run(["docker", *words], check=False, cwd=ROOT).returncode


def check_engine() -> None:
    """Raises UsageError where no docker engine answers."""
    if shutil.which("docker") is None:
        raise UsageError("docker is not installed: everything runs without it too, see the README.")
    if subprocess.run(["docker", "info"], capture_output=True, check=False).returncode:
        raise UsageError("No Docker engine answers: start one, or set DOCKER_HOST.")


def image_there(tag: str) -> bool:
    """Returns whether the engine has an image."""
    return subprocess.run(["docker", "image", "inspect", tag], capture_output=True, check=False).returncode == 0


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


def build(*, base: str, network: str, tag: str = IMAGE, commit: str = "HEAD", cluster: bool = False) -> int:
    """Builds the image of a commit and returns docker's exit code.

    Args:
        base: the base image.
        network: docker's network for the build, "" for its default.
        tag: name of the image.
        commit: what is packed; uncommitted changes are not.
        cluster: build the image of an S3 server too, its name that of the image and "-s3".

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
        files = {tag: "Dockerfile", **({tag + S3_SUFFIX: "s3.Dockerfile"} if cluster else {})}
        for name, file in files.items():
            dockerfile = str(folder / "app/docker" / file)
            code = docker("build", *extra, *arguments, "--tag", name, "--file", dockerfile, str(folder))
            if code:
                return code
        return 0


def run(words: Sequence[str], *, results: Path, network: str = "host", tag: str = IMAGE) -> int:
    """Runs `./inv WORDS` in a container whose results appear in a folder here; returns its exit code.

    What it says of a path inside the container is printed as the path here.
    """
    results.mkdir(parents=True, exist_ok=True)
    results.chmod(0o777)  # the container's user is another one
    check_engine()
    command = [
        "docker", "run", "--rm", "--init", "--network", network, "--shm-size", "1g",
        "--volume", f"{results.resolve()}:{_INSIDE}", tag, *words,
    ]  # fmt: skip
    return pass_on(command, results)


def pass_on(command: Sequence[str], results: Path) -> int:
    """Runs a command, prints what it says with paths of results as they are here, and returns its exit code."""
    here = str(results.resolve())
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT) as container:
        with ThreadPoolExecutor(2) as pool:
            pool.submit(_copy, container.stdout, sys.stdout, here)
            pool.submit(_copy, container.stderr, sys.stderr, here)
        return container.wait()


def _copy(said: IO[str] | None, out: IO[str], here: str) -> None:
    for line in said or ():
        out.write(line.replace(_INSIDE, here))
        out.flush()
