"""Everything this repository can do; `./inv --list` prints it."""

import shlex
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


@task(
    help={
        "mechanism": "mechanisms to compare, separated by commas",
        "workload": "dense (counts in an array per bin) or hash (an entry per key)",
        "keys": "number of keys, such as 4000000, 4e6 or 4M",
        "distribution": "uniform or zipf",
        "exponent": "of the Zipf law",
        "rate": "records per second",
        "duration": "seconds of measured load",
        "workers": "N, or FROM:TO for a rescale",
        "bins": "number of bins, a power of two up to 16384",
        "policy": "placement policy of a rescale: minimal_move or contiguous",
        "migration": "pattern (Megaphone's), rescale, none, or a plan file",
        "bins-per-pair": "megaphone-batched: bins each pair of workers moves in an epoch",
        "gap-epochs": "megaphone-batched: epochs without moves between two with",
        "seed": "of keys and of the order of runs",
        "rounds": "repetitions, interleaved",
        "quick": "none and two mechanisms on a small load, under 90 s",
        "max-offsets-per-trigger": "Spark's limit on records per epoch",
        "bootstrap-servers": "an existing broker instead of an embedded one",
        "state-dir": "folder for the workers' state instead of the result folder",
        "master": "Spark master instead of local mode",
        "output": "folder for results",
        "name": "name of the experiment",
        "force": "run although the same result is there already",
        "resume": "go on with the last unfinished result of the same experiment",
    }
)
def bench(
    c: Context, mechanism=None, workload=None, keys=None, distribution=None, exponent=None, rate=None, duration=None,
    workers=None, bins=None, policy=None, migration=None, bins_per_pair=None, gap_epochs=None, seed=None, rounds=None,
    quick=False, max_offsets_per_trigger=None, bootstrap_servers=None, state_dir=None, master=None, output=None,
    name=None, force=False, resume=False,
):  # fmt: skip
    """Compare migration mechanisms on one workload: verdicts, latencies, figures and a report."""
    options = {name: value for name, value in locals().items() if name != "c"}
    from harness.cli import run_bench

    sys.exit(run_bench(options))


@task(help={"checkpoint": "checkpoint folder of the running query", "workers": "number of workers to go to"})
def rescale(c: Context, checkpoint: str, workers: int) -> None:
    """Rescale a running query."""
    _run(c, f"impls.runtime.control {shlex.quote(checkpoint)} rescale {int(workers)}")


@task(help={"checkpoint": "checkpoint folder of the running query"})
def status(c: Context, checkpoint: str) -> None:
    """Show epoch, workers and migration of a running query."""
    _run(c, f"impls.runtime.control {shlex.quote(checkpoint)} status")


@task(help={"folder": "result folder; its figures and report are drawn anew"})
def report(c: Context, folder: str) -> None:
    """Draw the figures and the report of a result again."""
    from harness.cli import redraw

    sys.exit(redraw(folder))


@task(help={"file": "a result.json"})
def validate(c: Context, file: str) -> None:
    """Check a result file against the schema."""
    from harness.results.validate import validate as check_file

    with one_sentence():
        check_file(Path(file))


@task
def mechanisms(c: Context) -> None:
    """List the mechanisms and their options."""
    from harness.cli import list_mechanisms

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
