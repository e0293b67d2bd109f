"""Tasks of the dockerized path: docker.build, docker.bench, docker.reproduce."""

import shlex
import sys
from pathlib import Path

from invoke.context import Context
from invoke.tasks import task

from harness.cli.running import ROOT, one_sentence

__all__ = ["bench", "build", "reproduce"]

_RESULTS = ROOT / "results" / "docker"


@task(
    help={
        "base": "base image: Debian with apt, python3 3.11 and openjdk-17",
        "network": "docker's network for the build, such as host",
        "tag": "name of the image",
    }
)
def build(c: Context, base: str = "debian:bookworm-slim", network: str = "", tag: str = "rescale-bench") -> None:
    """Build the image of the last commit: dependencies and jars inside, nothing is fetched when it runs."""
    from harness.suites.artifact import image

    with one_sentence():
        sys.exit(image.build(base=base, network=network, tag=tag))


@task(help={"options": "options of ./inv bench, as one word", "results": "folder for results"})
def bench(c: Context, options: str = "", results: str = "") -> None:
    """Run ./inv bench in a container."""
    from harness.suites.artifact import image

    with one_sentence():
        sys.exit(image.run(["bench", *shlex.split(options)], results=Path(results or _RESULTS)))


@task(help={"quick": "every table and figure on a small load", "results": "folder for results"})
def reproduce(c: Context, quick: bool = False, results: str = "") -> None:
    """Regenerate every table and figure in a container that reaches no network but its own broker."""
    from harness.suites.artifact import image

    with one_sentence():
        words = ["reproduce", *(["--quick"] if quick else [])]
        sys.exit(image.run(words, results=Path(results or _RESULTS), network="none"))
