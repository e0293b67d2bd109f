"""Everything this repository can do; `./inv --list` prints it."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from invoke import Context, Exit, task

ROOT = Path(__file__).resolve().parent
PYTHON = sys.executable


@contextmanager
def one_sentence() -> Iterator[None]:
    """Turns a UsageError into its sentence and exit code 2."""
    from impls.errors import UsageError

    try:
        yield
    except UsageError as error:
        raise Exit(str(error), code=2) from None


def _run(c: Context, command: str) -> None:
    with c.cd(ROOT):
        c.run(f"{PYTHON} -m {command}", pty=sys.stdout.isatty())


@task
def doctor(c: Context) -> None:
    """Say what this machine lacks and how to get it (exit code 2 if something needed is missing)."""
    from rich.console import Console

    from harness.setup.doctor import examine, table

    findings = examine()
    Console().print(table(findings))
    if any(finding.needed and not finding.ok for finding in findings):
        raise Exit(code=2)


@task(help={"select": "what to give pytest: paths, -k EXPRESSION, ...", "all": "also what is marked slow or stress"})
def test(c: Context, select: str = "", all: bool = False) -> None:  # noqa: A002 - the option's name
    """Run the tests."""
    with one_sentence():
        from harness.setup.java import use_java

        use_java()
    every = "-m ''" if all else ""
    _run(c, f"pytest {every} {select}")


@task
def check(c: Context) -> None:
    """Check style and types, as CI does."""
    _run(c, "ruff check .")
    _run(c, "ruff format --check .")
    _run(c, "mypy")


@task
def fmt(c: Context) -> None:
    """Format the code and mend what the linter can mend."""
    _run(c, "ruff check --fix-only --quiet .")
    _run(c, "ruff format .")


@task(help={"upgrade": "take the newest versions that pyproject.toml allows"})
def lock(c: Context, upgrade: bool = False) -> None:
    """Write requirements.lock anew from pyproject.toml (needs the network)."""
    from harness.setup.lock import write_lock

    with one_sentence():
        write_lock(ROOT, upgrade=upgrade)


@task
def clean(c: Context) -> None:
    """Remove what tools leave behind; results, the environment and the jars stay."""
    import shutil

    for name in ("pytest_cache", "mypy_cache", "ruff_cache", "hypothesis"):
        shutil.rmtree(ROOT / f".{name}", ignore_errors=True)
    for left in (ROOT / "spark-warehouse", ROOT / "metastore_db", *ROOT.glob("[!.]*/**/__pycache__")):
        shutil.rmtree(left, ignore_errors=True)
