"""Tasks of the dockerized path: docker.build, docker.bench, docker.reproduce."""

import shlex
from pathlib import Path
from typing import Any

from invoke.context import Context

from harness.cli.verb import run, verb
from harness.files import ROOT
from harness.options.declared import FLAG, FOLDER, Option

_RESULTS = Option("results", "folder for results", FOLDER, default=ROOT / "results" / "docker", shown="results/docker/")


@verb(
    Option("base", "base image: Debian with apt, python3 3.11 and openjdk-17", default="debian:bookworm-slim"),
    Option("network", "docker's network for the build, such as host", default="", shown="docker's own"),
    Option("tag", "name of the image", default="rescale-bench"),
    Option("cluster", "build the S3 server's image of docker.bench --cluster too", FLAG),
)
def build(c: Context, **given: Any) -> None:
    """Build the image of the last commit: dependencies and jars inside, nothing is fetched when it runs."""
    run("harness.suites.artifact.image:build", **given)


@verb(
    Option("options", "options of ./inv bench, as one word", default="", shown="those of ./inv bench"),
    Option("cluster", "a container each for Spark's master, two hosts, broker, S3 server and driver", FLAG),
    _RESULTS,
)
def bench(c: Context, options: str, cluster: bool, results: str) -> None:
    """Run ./inv bench in a container, or on a cluster of containers, whose default is --quick."""
    if cluster:
        run("harness.suites.artifact.image:bench_on_cluster", shlex.split(options), results=Path(results))
    else:
        run("harness.suites.artifact.image:run", ["bench", *shlex.split(options)], results=Path(results))


@verb(Option("quick", "every table and figure on a small load", FLAG), _RESULTS)
def reproduce(c: Context, quick: bool, results: str) -> None:
    """Regenerate every table and figure in a container that reaches no network but its own broker."""
    words = ["reproduce", *(["--quick"] if quick else [])]
    run("harness.suites.artifact.image:run", words, results=Path(results), network="none")
