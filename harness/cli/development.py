"""Tasks for whoever changes the code: test, check, fmt, graph, lock, clean."""

import ast
import sys
from functools import cache
from pathlib import Path

from invoke.context import Context
from invoke.tasks import task

from harness.cli.verb import run, run_module, verb
from harness.files import ROOT
from harness.options.declared import COUNT, FLAG, FOLDER, INTEGER, Option
from impls.errors import UsageError

TOP = ("generators", "plots", "impls", "harness", "rescale_bench")
LAYERS = {
    "impls": ("errors", "addresses", "brokers", "closing", "sockets", "faults", "protocol", "store", "placement",
              "operators", "durability", "transfer", "worker", "autoscale", "driver", "controltopic", "realtime",
              "spark", "mechanisms", "catalog", "api", "processor", "aggregation", "stages", "chains", "adoption",
              "reading", "releasing"),
    "harness": ("files", "guard", "options", "setup", "lab", "measure", "oracle", "experiment", "results", "report",
                "live", "run", "suites", "cli", "docs"),
}  # fmt: skip
_BEGIN, _END = "<!-- package graph: ./inv graph -->\n", "<!-- end of the package graph -->"


@cache
def modules() -> dict[str, Path]:
    """Returns the files of all packages by the module's dotted name."""
    files = {}
    for top in TOP:
        for path in sorted((ROOT / top).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return files


@cache
def imports_of(module: str) -> frozenset[str]:
    """Returns what a module imports anywhere, in functions and for types too: our modules, and others' packages."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(modules()[module].read_text())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    ours = {name if name in modules() else name.rpartition(".")[0] for name in names if name.split(".")[0] in TOP}
    return frozenset(ours | {name.split(".")[0] for name in names if name.split(".")[0] not in TOP}) - {module}


def layer_of(module: str) -> str:
    """Returns the row of the graph that a module belongs to: `impls.worker`, `harness.files`, `plots`."""
    top, _, rest = module.partition(".")
    return f"{top}.{rest.split('.')[0]}" if top in LAYERS and rest else top


def _rows() -> dict[str, list[str]]:
    """The layers, lowest first, with the layers that each imports in the same order."""
    order = [name for top in TOP for name in ([f"{top}.{layer}" for layer in LAYERS[top]] if top in LAYERS else [top])]
    edges: dict[str, set[str]] = {name: set() for name in order}
    for module in modules():
        if layer_of(module) in edges:
            imported = {layer_of(name) for name in imports_of(module) if name.split(".")[0] in TOP}
            edges[layer_of(module)] |= imported - {layer_of(module)}
    return {name: [other for other in (*order, "impls") if other in edges[name]] for name in order}


def _graph_text() -> str:
    """Returns the table of packages, lowest first, as Markdown; each imports rows above its own only."""
    lines = ["| package | imports of its own part | imports of other parts |", "|---|---|---|"]
    for name, imported in _rows().items():
        top = name.partition(".")[0]
        own = [f"`{other.partition('.')[2]}`" for other in imported if other.startswith(f"{top}.")]
        others = [f"`{other}`" for other in imported if not other.startswith(f"{top}.")]
        lines.append(f"| `{name}` | {', '.join(own) or '-'} | {', '.join(others) or '-'} |")
    return "\n".join(lines) + "\n"


def with_graph(text: str) -> str:
    """Returns a document with the table between its two marks written anew; raises UsageError without the marks."""
    before, begin, rest = text.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        raise UsageError(f"docs/packages.md lacks {_BEGIN.strip()!r} or {_END!r}: put the line back.")
    return f"{before}{begin}\n{_graph_text()}\n{end}{after}"


def _write_graph() -> Path:
    """Writes the table into docs/packages.md and returns its path."""
    path = ROOT / "docs" / "packages.md"
    path.write_text(with_graph(path.read_text()))
    return path


_FAST = "tests/unit tests/property tests/simulation tests/test_tidy.py"
HANDS = 5  # into which tests/tiers.py deals tests


@verb(
    Option("select", "what to give pytest: paths, -k EXPRESSION, ...", default="", shown="the suite"),
    Option("all", "everything, also what is marked slow or stress: about 45 minutes", FLAG),
    Option("fast", "only what needs no JVM, Kafka or Spark, with a sample of simulated cases: about 2 minutes", FLAG),
    Option("hand", f"which fifth of the tests that are dealt, 0 to {HANDS - 1}", INTEGER,
           shown="HEAD's number of commits modulo 5, in a shallow clone its hash", subject="The hand", least=0,
           most=HANDS - 1),
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
        from harness.results.machine import commits, shallow_commit

        hand, why = hand_of(commits(), shallow_commit())
        sys.stdout.write(f"Hand {hand} of 0 to {HANDS - 1}, by {why}.\n")
        sys.stdout.flush()
    return select if hand is None else f"--hand {hand} {select}"


def hand_of(commits: int, shallow: str) -> tuple[int, str]:
    """Returns the hand whose turn it is, and by what it is chosen.

    Args:
        commits: that lead to HEAD, as far as the clone has them.
        shallow: HEAD's hash in a shallow clone, which has one commit whatever HEAD is; "" in a whole one.
    """
    if shallow:
        return int(shallow, 16) % HANDS, "HEAD's hash, as a shallow clone does not have the commits to count"
    return commits % HANDS, f"HEAD's number of commits, {commits}"


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
    from harness.cli.development import _write_graph

    _write_graph()


@verb(Option("upgrade", "take the newest versions that pyproject.toml allows", FLAG))
def lock(c: Context, upgrade: bool) -> None:
    """Rewrite requirements.lock and the lock files of its parts from pyproject.toml (needs the network)."""
    from harness.setup.dist import write_lock

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
