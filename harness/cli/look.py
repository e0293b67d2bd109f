"""Tasks that look at results, at the machine and at a running query, or that remake what is there."""

import contextlib
import os
import shlex
import sys
from pathlib import Path
from typing import Any

from invoke.context import Context
from invoke.tasks import task

from harness.cli.verb import run, run_module, verb
from harness.options.declared import COUNT, FLAG, FOLDER, INTEGER, REAL, TEXT, Option

_CHECKPOINT = Option("checkpoint", "checkpoint folder of the running query", FOLDER, required=True)
_ANY_CHECKPOINT = Option(
    "checkpoint",
    "checkpoint folder of a query, which may be running; of a chain that of a stage",
    FOLDER,
    required=True,
)
_FOLDER = Option("folder", "result folder", FOLDER, required=True)


def give_way(checkpoint: str) -> None:
    """Lets others have the CPU before this process, and a query on the checkpoint of this host before it has any.

    Beside a query it gets what is left over (SCHED_IDLE); the file that says so is also there when one was killed.
    """
    os.nice(10)
    if (Path(checkpoint) / "rescale" / "control.json").exists():
        with contextlib.suppress(AttributeError, OSError):  # another system than Linux, or one that refuses
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def _absolute(folder: str) -> str:
    """Returns a folder for a command that runs in another one."""
    return shlex.quote(str(Path(folder).absolute()))


@verb(
    _CHECKPOINT,
    Option("workers", "number of workers to go to", COUNT, required=True, subject="The number of workers"),
    Option("hosts", "on a cluster the hosts that keep workers, separated by commas", TEXT, shown="all"),
)
def rescale(c: Context, checkpoint: str, workers: int, hosts: str | None) -> None:
    """Rescale a running query; on a cluster also to some hosts, so that others can be taken away."""
    named = " ".join(shlex.quote(host) for host in hosts.split(",")) if hosts else ""
    run_module(c, f"impls.driver.control {_absolute(checkpoint)} rescale {workers} {named}".rstrip())


@verb(_CHECKPOINT)
def status(c: Context, checkpoint: str) -> None:
    """Show epoch, workers and migration of a running query."""
    run_module(c, f"impls.driver.control {_absolute(checkpoint)} status")


@verb(
    _CHECKPOINT,
    Option("once", "show it once", FLAG),
    Option("json", "a line of JSON instead of each picture", FLAG),
    Option("interval", "seconds from one picture to the next", REAL, default=1.0, unit="seconds", least=0.1, most=3600,
           subject="The interval"),
)  # fmt: skip
def top(c: Context, checkpoint: str, *, once: bool, json: bool, interval: float) -> None:
    """Watch a running query live: workers, rates, latency, queue, migration; Ctrl-C ends it."""
    run("harness.live.top:top", checkpoint, once=once, as_json=json, interval=interval)


@verb(
    _ANY_CHECKPOINT,
    Option("epoch", "the epoch whose end is shown", INTEGER, shown="the last one that has ended"),
    Option("key", "only this key: its text, or its columns as JSON", shown="all of them"),
    Option("into", "a new folder for all rows as Parquet", FOLDER, shown="none"),
    Option("against", "an earlier epoch: show only what has changed since its end", INTEGER, shown="none"),
    Option("log_dir", "folder or URI of changelog and snapshots, if the query has one", FOLDER,
           shown="in the checkpoint"),
    Option("json", "all rows as lines of JSON", FLAG),
    Option("limit", "rows of the table at most", COUNT, default=20, subject="The number of rows"),
)  # fmt: skip
def state(c: Context, checkpoint: str, epoch: int | None, log_dir: str | None, *, json: bool, **given: Any) -> None:
    """Show the state in a checkpoint as it was at the end of an epoch, from its snapshots and its changelog.

    Nothing is written there. A query that runs goes on, keeps the files meanwhile, and has the CPU first. With --key
    and no epoch it answers itself: as of its last commit, in milliseconds.
    """
    if given["key"] is None:
        give_way(checkpoint)
    run("harness.run.state:run_state", checkpoint, epoch, log_dir, as_json=json, **given)


@verb(
    _ANY_CHECKPOINT,
    Option("json", "all of them as lines of JSON", FLAG),
    Option("limit", "rows of the table at most", COUNT, default=20, subject="The number of rows"),
)  # fmt: skip
def history(c: Context, checkpoint: str, *, json: bool, limit: int) -> None:
    """Show a query's migrations: cause, workers, bytes, phases, latency, outcome; also when it has ended."""
    run("harness.run.history:run_history", checkpoint, as_json=json, limit=limit)


@verb(_FOLDER)
def report(c: Context, folder: str) -> None:
    """Draw the figures and the report of a result again."""
    run("harness.report.report:redraw", folder)


@verb(
    Option("folders", "result folders, or folders of such, separated by commas", default="", shown="results/"),
    Option("output", "the page to write", default="", shown="results/compare.html"),
)
def compare(c: Context, folders: str, output: str) -> None:
    """Compare finished experiments on one page: every run's verdict, a table, figures."""
    run("harness.report.across:compare", folders, output)


@verb(Option("file", "a result.json", required=True))
def validate(c: Context, file: str) -> None:
    """Check a result file against the schema."""
    from harness.results.summary import validate as check_file

    check_file(Path(file))


@task
def mechanisms(c: Context) -> None:
    """List the mechanisms and their options."""
    run("harness.cli.mechanisms:list_mechanisms")


@verb(
    Option("state_dir", "folder in which workers are to keep their state", FOLDER, shown="that of temporary files"),
    Option("fetch", "fetch the jars if they are not there", FLAG),
    Option("json", "print JSON", FLAG),
)
def doctor(c: Context, **given: Any) -> None:
    """Say what this machine lacks and how to get it; the exit code is 1 if something needed is missing."""
    place = Path(given["state_dir"]) if given["state_dir"] else None
    run("harness.setup.doctor:report", place, as_json=given["json"], fetch=given["fetch"])


@verb(
    Option("quick", "every table and figure on a small load, about 20 minutes", FLAG),
    Option("output", "folder for results", FOLDER, shown="results/"),
)
def reproduce(c: Context, quick: bool, output: str | None) -> None:
    """Regenerate every table and figure from scratch, some 9 hours; goes on where it was cut off."""
    run("harness.suites.artifact.reproduce:reproduce", Path(output) if output else None, quick=quick)


@verb(Option("results", "folder with results", FOLDER, shown="results/"))
def figures(c: Context, results: str | None) -> None:
    """Draw the figures and reports of all stored results again."""
    run("harness.suites.artifact.reproduce:figures", Path(results) if results else None)


@verb(_FOLDER)
def export(c: Context, folder: str) -> None:
    """Write the epoch logs of a result as Parquet."""
    from harness.results.epochs import export as write

    for path in write(Path(folder)):
        sys.stdout.write(f"{path}\n")
