"""Tasks that look at results, at the machine and at a running query, or that remake what is there."""

import shlex
import sys
from pathlib import Path

from invoke.context import Context
from invoke.exceptions import Exit
from invoke.tasks import task

from harness.cli.running import one_sentence, run_module

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
    "validate",
]


@task(help={"checkpoint": "checkpoint folder of the running query", "workers": "number of workers to go to"})
def rescale(c: Context, checkpoint: str, workers: int) -> None:
    """Rescale a running query."""
    run_module(c, f"impls.driver.control {shlex.quote(checkpoint)} rescale {int(workers)}")


@task(help={"checkpoint": "checkpoint folder of the running query"})
def status(c: Context, checkpoint: str) -> None:
    """Show epoch, workers and migration of a running query."""
    run_module(c, f"impls.driver.control {shlex.quote(checkpoint)} status")


@task(help={"folder": "result folder; its figures and report are drawn anew"})
def report(c: Context, folder: str) -> None:
    """Draw the figures and the report of a result again."""
    from harness.report.redraw import redraw

    sys.exit(redraw(folder))


@task(
    help={
        "folders": "result folders, or folders of such, separated by commas; results/ by default",
        "output": "the page to write; results/compare.html by default",
    }
)
def compare(c: Context, folders: str = "", output: str = "") -> None:
    """Compare finished experiments on one page: every run's verdict, a table, figures."""
    from harness.cli.commands import compare as write

    sys.exit(write(folders, output))


@task(help={"file": "a result.json"})
def validate(c: Context, file: str) -> None:
    """Check a result file against the schema."""
    from harness.results.validate import validate as check_file

    with one_sentence():
        check_file(Path(file))


@task
def mechanisms(c: Context) -> None:
    """List the mechanisms and their options."""
    from harness.cli.commands import list_mechanisms

    list_mechanisms()


@task
def doctor(c: Context) -> None:
    """Say what this machine lacks and how to get it (exit code 2 if something needed is missing)."""
    from rich.console import Console

    from harness.setup.doctor import examine, table

    findings = examine()
    Console().print(table(findings))
    if any(finding.needed and not finding.ok for finding in findings):
        raise Exit(code=2)


@task(help={"quick": "every table and figure on a small load, about 20 minutes", "output": "folder for results"})
def reproduce(c: Context, quick: bool = False, output: str = "") -> None:
    """Regenerate every table and figure from scratch, some 9 hours; goes on where it was cut off."""
    from harness.suites.artifact.reproduce import reproduce as carry_out

    sys.exit(carry_out(Path(output) if output else None, quick=quick))


@task(help={"results": "folder with results"})
def figures(c: Context, results: str = "") -> None:
    """Draw the figures and reports of all stored results again."""
    from harness.suites.artifact.reproduce import figures as draw

    sys.exit(draw(Path(results) if results else None))


@task(help={"folder": "result folder"})
def export(c: Context, folder: str) -> None:
    """Write the epoch logs of a result as Parquet."""
    from harness.report.export import export as write

    with one_sentence():
        for path in write(Path(folder)):
            sys.stdout.write(f"{path}\n")
