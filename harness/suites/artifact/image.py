"""Images of a commit, and `./inv` in a container or on a cluster of them."""

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from harness.files import ROOT
from harness.setup.java import ensure_jars, jars_folder
from impls.errors import UsageError

_IMAGE = "rescale-bench"
_S3_SUFFIX = "-s3"  # after the image's name: that of a server of the S3 protocol
_INSIDE = "/app/results"


def docker(*words: str) -> int:
    """Runs docker with its output shown and returns the exit code; raises UsageError where no engine answers."""
    _check_engine()
    return subprocess.run(["docker", *words], check=False, cwd=ROOT).returncode


def _check_engine() -> None:
    """Raises UsageError where no docker engine answers."""
    if shutil.which("docker") is None:
        raise UsageError("docker is not installed: everything runs without it too, see the README.")
    if subprocess.run(["docker", "info"], capture_output=True, check=False).returncode:
        raise UsageError("No Docker engine answers: start one, or set DOCKER_HOST.")


def _image_there(tag: str) -> bool:
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


def build(*, base: str, network: str, tag: str = _IMAGE, commit: str = "HEAD", cluster: bool = False) -> int:
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
        files = {tag: "Dockerfile", **({tag + _S3_SUFFIX: "s3.Dockerfile"} if cluster else {})}
        for name, file in files.items():
            dockerfile = str(folder / "app/docker" / file)
            code = docker("build", *extra, *arguments, "--tag", name, "--file", dockerfile, str(folder))
            if code:
                return code
        return 0


def run(words: Sequence[str], *, results: Path, network: str = "host", tag: str = _IMAGE) -> int:
    """Runs `./inv WORDS` in a container whose results appear in a folder here; returns its exit code.

    What it says of a path inside the container is printed as the path here.
    """
    results.mkdir(parents=True, exist_ok=True)
    results.chmod(0o777)  # the container's user is another one
    _check_engine()
    command = [
        "docker", "run", "--rm", "--init", "--network", network, "--shm-size", "1g",
        "--volume", f"{results.resolve()}:{_INSIDE}", tag, *words,
    ]  # fmt: skip
    return _pass_on(command, results)


def _pass_on(command: Sequence[str], results: Path) -> int:
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


_ON_CLUSTER = (
    "--master", "spark://master:7077", "--bootstrap-servers", "kafka:9092", "--state-dir", "/tmp/state", "--log-dir",
    "s3://rescale/log?endpoint_override=s3:9000&scheme=http&region=us-east-1&allow_bucket_creation=true",
)  # fmt: skip
_FILE = ROOT / "docker" / "compose.yaml"
_DRIVER = "driver"
_KEPT = ("master", "worker-1", "worker-2", "kafka")  # whose folders tell why a bench failed
_CHOICES = ("--quick", "--mechanism", "--all")
_GRACE_S = "20"


def _words(options: Sequence[str]) -> list[str]:
    """Returns the words of `./inv bench` on the cluster: `--quick`, unless the options say what to compare.

    Raises:
        UsageError: a mechanism keeps Spark's own state, which is in a folder that all hosts must see.
    """
    if any("native-" in word for word in options):
        raise UsageError(
            "Spark's own state is in a checkpoint folder that all hosts must see, and the containers share none: "
            "leave native-restart and native-repartition out, or run ./inv bench --cluster."
        )
    chosen = any(word.split("=")[0] in _CHOICES for word in options)
    return ["bench", *([] if chosen else ["--quick"]), *options, *_ON_CLUSTER]


def _compose() -> list[str]:
    """Returns the command of docker compose: the engine's plugin, or the program of its own; raises UsageError."""
    if subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode == 0:
        return ["docker", "compose"]
    if shutil.which("docker-compose"):
        return ["docker-compose"]
    raise UsageError("docker compose is not installed: install it, or run ./inv bench --cluster without containers.")


@dataclass(frozen=True)
class _Project:
    """The cluster's containers; no other run shares them."""

    command: Sequence[str]
    env: dict[str, str]

    def tell(self, *words: str) -> None:
        """Runs docker compose; raises UsageError with what it said last when it fails."""
        done = subprocess.run([*self.command, *words], capture_output=True, text=True, check=False, env=self.env)
        if done.returncode:
            last = done.stderr.strip().splitlines()[-1:] or ["it said nothing"]
            raise UsageError(f"docker compose {words[0]} failed: {last[0]}")

    def container(self, service: str) -> str:
        """Returns the id of a service's container, "" where there is none."""
        command = [*self.command, "ps", "--all", "--quiet", service]
        if self.command[0] == "docker-compose":  # which has no --all: it always shows all
            command.remove("--all")
        return subprocess.run(command, capture_output=True, text=True, check=False, env=self.env).stdout.strip()

    def keep_logs(self, folder: Path) -> None:
        """Copies the hosts' folders out of the containers."""
        folder.mkdir(parents=True, exist_ok=True)
        for service in _KEPT:
            if container := self.container(service):
                command = ["docker", "cp", f"{container}:/tmp/host", str(folder / service)]
                subprocess.run(command, capture_output=True, check=False)


@contextmanager
def _project(words: Sequence[str], results: Path, tag: str) -> Iterator[_Project]:
    """Starts the containers, each when those that it needs answer, and removes them in the end."""
    variables = {
        "RESCALE_IMAGE": tag, "RESCALE_S3_IMAGE": tag + _S3_SUFFIX, "RESCALE_RESULTS": str(results.resolve()),
        "RESCALE_COMMAND": shlex.join(words),
    }  # fmt: skip
    name = f"rescale-cluster-{os.getpid()}"
    command = [*_compose(), "--project-name", name, "--file", str(_FILE), "--profile", "cluster"]
    project = _Project(command, {**os.environ, **variables})
    try:
        project.tell("up", "--detach", _DRIVER)
        yield project
    except UsageError:
        project.keep_logs(results / "hosts")
        raise
    finally:
        project.tell("down", "--volumes", "--timeout", _GRACE_S)


def bench_on_cluster(options: Sequence[str], *, results: Path, tag: str = _IMAGE) -> int:
    """Runs `./inv bench` with the options given on a cluster of containers and returns its exit code.

    Results appear in a folder here; when it fails, the hosts' logs in its folder `hosts`.

    Raises:
        UsageError: no engine or no compose is there, an image is missing, or a container does not come up.
    """
    words = _words(options)
    _check_engine()
    for name in (tag, tag + _S3_SUFFIX):
        if not _image_there(name):
            raise UsageError(f"There is no image {name}: ./inv docker.build --cluster builds it.")
    results.mkdir(parents=True, exist_ok=True)
    results.chmod(0o777)  # the containers' user is another one
    with _project(words, results, tag) as project:
        harness = project.container(_DRIVER)
        _pass_on(["docker", "logs", "--follow", harness], results)
        told = subprocess.run(["docker", "wait", harness], capture_output=True, text=True, check=False).stdout
        code = int(told or 1)
        if code:
            project.keep_logs(results / "hosts")
        return code
