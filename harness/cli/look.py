"""Tasks that look at results, at the machine and at a running query, or that remake what is there."""

import shlex
import sys
from pathlib import Path

from invoke.context import Context
from invoke.exceptions import Exit
from invoke.tasks import task

from harness.cli.verb import run, run_module, verb
from harness.options.declared import COUNT, FLAG, FOLDER, REAL, TEXT, Option

__all__ = [
    "compare",
    "doctor",
    "export",
    "figures",
    "mechanisms",
    "report",
    "reproduce",
    "rescale",
    "status",
    "top",
    "validate",
]

_CHECKPOINT = Option("checkpoint", "checkpoint folder of the running query", FOLDER, required=True)
_FOLDER = Option("folder", "result folder", FOLDER, required=True)


@verb(
    _CHECKPOINT,
    Option("workers", "number of workers to go to", COUNT, required=True, subject="The number of workers"),
    Option("hosts", "on a cluster the hosts that keep workers, separated by commas", TEXT, shown="all"),
)
def rescale(c: Context, checkpoint: str, workers: int, hosts: str | None) -> None:
    """Rescale a running query; on a cluster also to some hosts, so that others can be taken away."""
    named = " ".join(shlex.quote(host) for host in hosts.split(",")) if hosts else ""
    run_module(c, f"impls.driver.control {shlex.quote(checkpoint)} rescale {workers} {named}".rstrip())


@verb(_CHECKPOINT)
def status(c: Context, checkpoint: str) -> None:
    """Show epoch, workers and migration of a running query."""
    run_module(c, f"impls.driver.control {shlex.quote(checkpoint)} status")


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
    from harness.results.validate import validate as check_file

    check_file(Path(file))


@task
def mechanisms(c: Context) -> None:
    """List the mechanisms and their options."""
    run("harness.cli.mechanisms:list_mechanisms")


@task
def doctor(c: Context) -> None:
    """Say what this machine lacks and how to get it (exit code 2 if something needed is missing)."""
    from rich.console import Console

    from harness.setup.doctor import examine, table

    findings = examine()
    Console().print(table(findings))
    if any(finding.needed and not finding.ok for finding in findings):
        raise Exit(code=2)


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
    from harness.report.export import export as write

    for path in write(Path(folder)):
        sys.stdout.write(f"{path}\n")
