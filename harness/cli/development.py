"""Tasks for whoever changes the code: test, check, fmt, graph, lock, clean."""

from invoke.context import Context
from invoke.tasks import task

from harness.cli.verb import run, run_module, verb
from harness.files import ROOT
from harness.options.declared import COUNT, FLAG, FOLDER, INTEGER, Option

__all__ = ["HANDS", "check", "clean", "dist", "example", "fmt", "graph", "lock", "test"]

_FAST = "tests/unit tests/property tests/simulation tests/test_tidy.py"
HANDS = 5  # into which tests/tiers.py deals tests


@verb(
    Option("select", "what to give pytest: paths, -k EXPRESSION, ...", default="", shown="the suite"),
    Option("all", "everything, also what is marked slow or stress: about 45 minutes", FLAG),
    Option("fast", "only what needs no JVM, Kafka or Spark, with a sample of simulated cases: about 2 minutes", FLAG),
    Option("hand", f"which fifth of the tests that are dealt, 0 to {HANDS - 1}", INTEGER,
           shown="the number of HEAD's commits modulo 5", subject="The hand", least=0, most=HANDS - 1),
    Option("jobs", "processes; of three or more the last has a low priority, and takes what starts no Spark or Kafka",
           COUNT, subject="The number of processes", shown="3; 2 with --fast; 1 where tests are selected"),
)  # fmt: skip
def test(c: Context, *, select: str, all: bool, fast: bool, hand: int | None, jobs: int | None) -> None:  # noqa: A002
    """Run the tests, and list the slowest; tests/README.md says what each tier has."""
    if not fast:
        from harness.setup.java import use_java

        use_java()
    number = jobs or (1 if select else 2 if fast else 3)
    spread = f"-n {number} --no-loadscope-reorder" if number > 1 else ""
    run_module(c, f"pytest --durations=30 {spread} {_tier(select, everything=all, fast=fast, hand=hand)}")


def _tier(select: str, *, everything: bool, fast: bool, hand: int | None) -> str:
    """Returns what tells pytest the tier; tests that are selected run whole, unless a hand is named."""
    if fast:
        return f"--fast {select or _FAST}"
    if everything:
        return f"-m '' {select}"
    if hand is None and not select:
        from harness.results.machine import commits

        hand = commits() % HANDS
    return select if hand is None else f"--hand {hand} {select}"


@task
def check(c: Context) -> None:
    """Check style and types, as CI does."""
    run_module(c, "ruff check .")
    run_module(c, "ruff format --check .")
    run_module(c, "mypy")


@task
def fmt(c: Context) -> None:
    """Format the code and fix what the linter can fix."""
    run_module(c, "ruff check --fix-only --quiet .")
    run_module(c, "ruff format .")


@verb()
def graph(c: Context) -> None:
    """Write the graph of packages and their imports into docs/packages.md."""
    from harness.cli.graph import write_graph

    write_graph()


@verb(Option("upgrade", "take the newest versions that pyproject.toml allows", FLAG))
def lock(c: Context, upgrade: bool) -> None:
    """Rewrite requirements.lock and the lock files of its parts from pyproject.toml (needs the network)."""
    from harness.setup.lock import write_lock

    write_lock(ROOT, upgrade=upgrade)


@verb(Option("output", "folder for the two files", FOLDER, default=ROOT / "dist", shown="dist/"))
def dist(c: Context, output: str) -> None:
    """Build the source distribution, and from it the wheel; prints their paths."""
    run("harness.setup.dist:print_built", output)


@verb(
    Option("name", "name of an example: examples/README.md lists them", required=True),
    Option("kafka", "addresses of a broker", shown="one that this command starts and ends"),
)
def example(c: Context, name: str, kafka: str | None) -> None:
    """Run one of the examples."""
    run("harness.setup.examples:run_example", name, ["--kafka", kafka] if kafka else [])


@task
def clean(c: Context) -> None:
    """Remove what tools leave behind; results, the environment and the jars stay."""
    import shutil

    for name in ("pytest_cache", "mypy_cache", "ruff_cache", "hypothesis"):
        shutil.rmtree(ROOT / f".{name}", ignore_errors=True)
    for left in (ROOT / "spark-warehouse", ROOT / "metastore_db", *ROOT.glob("[!.]*/**/__pycache__")):
        shutil.rmtree(left, ignore_errors=True)
