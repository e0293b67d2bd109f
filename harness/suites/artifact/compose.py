"""Runs `./inv bench` on a cluster of containers: docker/compose.yaml's profile `cluster`, begun and ended here."""

import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from harness.files import ROOT
from harness.suites.artifact.image import IMAGE, S3_SUFFIX, check_engine, image_there, pass_on
from impls.errors import UsageError

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
    own = {
        "RESCALE_IMAGE": tag, "RESCALE_S3_IMAGE": tag + S3_SUFFIX, "RESCALE_RESULTS": str(results.resolve()),
        "RESCALE_COMMAND": shlex.join(words),
    }  # fmt: skip
    name = f"rescale-cluster-{os.getpid()}"
    command = [*_compose(), "--project-name", name, "--file", str(_FILE), "--profile", "cluster"]
    project = _Project(command, {**os.environ, **own})
    try:
        project.tell("up", "--detach", _DRIVER)
        yield project
    except UsageError:
        project.keep_logs(results / "hosts")
        raise
    finally:
        project.tell("down", "--volumes", "--timeout", _GRACE_S)


def bench_on_cluster(options: Sequence[str], *, results: Path, tag: str = IMAGE) -> int:
    """Runs `./inv bench` with the options given on a cluster of containers and returns its exit code.

    Results appear in a folder here; when it fails, the hosts' logs in its folder `hosts`.

    Raises:
        UsageError: no engine or no compose is there, an image is missing, or a container does not come up.
    """
    words = _words(options)
    check_engine()
    for name in (tag, tag + S3_SUFFIX):
        if not image_there(name):
            raise UsageError(f"There is no image {name}: ./inv docker.build --cluster builds it.")
    results.mkdir(parents=True, exist_ok=True)
    results.chmod(0o777)  # the containers' user is another one
    with _project(words, results, tag) as project:
        harness = project.container(_DRIVER)
        pass_on(["docker", "logs", "--follow", harness], results)
        told = subprocess.run(["docker", "wait", harness], capture_output=True, text=True, check=False).stdout
        code = int(told or 1)
        if code:
            project.keep_logs(results / "hosts")
        return code
