"""House rules that a program can check; each failure names the file, the line and what to do instead."""

import ast
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

from harness.cli.development import LAYERS, TOP, imports_of, layer_of, modules, with_graph

ROOT = Path(__file__).resolve().parents[1]
SOURCES = sorted(modules().values())
TESTS = sorted((ROOT / "tests").rglob("*.py"))
WITH_DOCUMENTS = (*TOP, "docker", "docs", "examples", "results")
DOCUMENTS = [*ROOT.glob("*.md"), *(p for top in WITH_DOCUMENTS for p in (ROOT / top).rglob("*.md"))]
FILE_LINES_MAX, TEST_LINES_MAX, FUNCTION_LINES_MAX, MECHANISM_LINES_MAX = 300, 400, 70, 150
FORBIDDEN_IMPORTS = {
    "generators": ("impls", "harness", "plots", "pyspark", "rescale_bench"),
    "harness": ("rescale_bench",),
    "impls": ("harness", "plots", "generators", "rescale_bench"),
    "plots": ("impls", "generators", "harness", "pyspark", "rescale_bench"),
}
WHERE_PYSPARK = ("impls.api", "impls.spark.", "impls.processor.", "impls.mechanisms.native_spark.",
                 "impls.aggregation", "impls.chains", "impls.adoption.", "impls.reading.", "impls.releasing.",
                 "harness.", "rescale_bench.")  # fmt: skip
BANNED = {
    r"\btime\.time\(": "use time.monotonic() for durations, generators.clock.now_us() for wall clock",
    r"\bhasattr\(": "declare the method on the interface",
    r"\bF(?:IX)ME\b|\bX(?:X)X\b|\bH(?:A)CK\b": "finish it or write an issue",
    r"\brandom\.(?:random|randint|choice|shuffle)\(": "use a seeded numpy Generator",
    r"\beval\(": "parse the input",
    r"\bSimple(?:Queue)\b": "queue.Queue: its get(timeout) can wait for ever, when its thread lacks a CPU",
}
UNPICKLED = {  # whatever is unpickled runs code: where it may be, and who has written it
    "impls/driver/codes.py": "the query's owner, into the checkpoint",
    "impls/operators/pipeline.py": "the query's owner, into the checkpoint",
    "impls/processor/start.py": "the same process, a moment before",
    "impls/processor/program.py": "the driver, into the step that Spark brings",
    "impls/realtime/link.py": "the driver or one of its tasks, which have proved that they know the query's key",
}
BANNED_IN_TESTS = {
    r"setattr\(.*\btime(\.|, ?\")(sleep|monotonic|perf_counter|time)":
        "a library's thread meets it too: clocks.set_clock for the module that is tested",
    r"^(?!.*\bwith ).*\bredis\.Redis[.(]": "close it, or another test fails for its open socket: with ... as client",
}  # fmt: skip


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def none(found: Iterable[str]) -> None:
    """Fails with every finding on a line of its own."""
    lines = sorted(found)
    assert not lines, f"{len(lines)} found:\n" + "\n".join(lines)


def cycles(edges: dict[str, set[str]]) -> list[str]:
    """Each way back that a walk through a graph finds."""
    found: list[str] = []
    done: set[str] = set()

    def walk(node: str, way: tuple[str, ...]) -> None:
        if node in way:
            found.append(" -> ".join([*way[way.index(node) :], node]))
        elif node not in done:
            for other in sorted(edges.get(node, ())):
                walk(other, (*way, node))
            done.add(node)

    for node in sorted(edges):
        walk(node, ())
    return found


@pytest.mark.lengthy
def test_no_package_imports_what_it_may_not_know():
    none(
        f"{module} imports {other}"
        for module in modules()
        for other in imports_of(module)
        if other.split(".")[0] in FORBIDDEN_IMPORTS.get(module.split(".")[0], ())
        and not (other == "pyspark" and module.startswith(WHERE_PYSPARK))
    )


def test_inside_impls_and_harness_imports_lead_downwards():
    rank = {f"{top}.{layer}": place for top, layers in LAYERS.items() for place, layer in enumerate(layers)}
    folders = {f"{top}.{p.stem}" for top in LAYERS for p in (ROOT / top).iterdir() if p.is_dir() or p.suffix == ".py"}
    unknown = {f for f in folders if not f.endswith(("__", "__init__")) and f not in rank}
    none(f"{layer} has no place in LAYERS of harness/cli/development.py" for layer in unknown)
    none(
        f"{module} imports {other} from a layer above its own"
        for module in modules()
        for other in imports_of(module)
        if layer_of(module) in rank and layer_of(module).split(".")[0] == other.split(".")[0]
        if other in LAYERS or rank[layer_of(other)] > rank[layer_of(module)]
    )


def test_no_files_import_each_other_in_a_circle():
    none(cycles({module: {other for other in imports_of(module) if other in modules()} for module in modules()}))
    suites: dict[str, set[str]] = {}
    for module in modules():
        if module.startswith("harness.suites."):
            here, others = module.split(".")[2], {o for o in imports_of(module) if o.startswith("harness.suites.")}
            suites.setdefault(here, set()).update({other.split(".")[2] for other in others} - {here})
    none(cycles(suites))


def test_a_circle_is_found():
    assert cycles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == ["b -> c -> b"]


def test_pyspark_is_imported_where_spark_is_known():
    none(
        f"{module} imports pyspark; in impls only {', '.join(WHERE_PYSPARK[:-1])} do"
        for module in modules()
        if {"pyspark", "py4j"} & imports_of(module) and not module.startswith(WHERE_PYSPARK)
    )


def test_the_package_graph_is_up_to_date():
    text = (ROOT / "docs" / "packages.md").read_text()
    assert with_graph(text) == text, "run ./inv graph"


def lines_with(banned: dict[str, str], paths: Iterable[Path]) -> Iterator[str]:
    """Each line that has a banned pattern, with what to do in its place."""
    for path in paths:
        for number, line in enumerate(path.read_text().splitlines(), 1):
            yield from (
                f"{name(path)}:{number}: {to_do}" for pattern, to_do in banned.items() if re.search(pattern, line)
            )


def test_no_banned_call():
    none(lines_with(BANNED, SOURCES))


def unpickling(path: Path) -> list[int]:
    """The lines that unpickle: by a module of pickles, or what a connection of multiprocessing hands over."""
    calls = (node.func for node in ast.walk(tree(path)) if isinstance(node, ast.Call))
    named = [func for func in calls if isinstance(func, ast.Attribute)]
    pickles, connects = {"pickle", "cloudpickle"}, "multiprocessing.connection" in path.read_text()
    return [
        func.lineno for func in named
        if func.attr == "Unpickler"
        or (func.attr == "recv" and connects)
        or (func.attr in {"load", "loads"} and isinstance(func.value, ast.Name) and func.value.id in pickles)
    ]  # fmt: skip


def test_nothing_that_another_user_can_write_is_unpickled():
    packages = [path for path in SOURCES if name(path).split("/")[0] != "tests"]
    none(
        f"{name(path)}:{line} unpickles: say in UNPICKLED who has written it, or read JSON"
        for path in packages
        for line in unpickling(path)
        if name(path) not in UNPICKLED
    )
    none(f"{path} unpickles nothing" for path in UNPICKLED if not unpickling(ROOT / path))


def test_no_test_disturbs_another():
    none(lines_with(BANNED_IN_TESTS, TESTS))


@pytest.mark.lengthy
def test_files_and_functions_stay_short():
    lines = {path: len(path.read_text().splitlines()) for path in SOURCES + TESTS}
    most = {path: TEST_LINES_MAX if path in TESTS else FILE_LINES_MAX for path in lines}
    none(f"{name(path)} has {n} lines, {most[path]} are allowed" for path, n in lines.items() if n > most[path])
    none(
        f"{name(path)}:{node.lineno}: {node.name} has more than {FUNCTION_LINES_MAX} lines"
        for path in lines
        for node in ast.walk(tree(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno >= FUNCTION_LINES_MAX
    )


def defined(path: Path) -> dict[str, ast.stmt]:
    """Names that a file's top level defines or imports, with the statement."""
    found: dict[str, ast.stmt] = {}
    for node in tree(path).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found[node.name] = node
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= {alias.asname or alias.name: node for alias in node.names}
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {n.id: node for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)}
    return found


def public(path: Path) -> list[str]:
    """What a file defines without an underscore in front."""
    imports = (ast.Import, ast.ImportFrom)
    return [n for n, node in defined(path).items() if not n.startswith("_") and not isinstance(node, imports)]


@pytest.mark.lengthy
def test_public_names_are_used_elsewhere():
    """Used by name in another file, a document too, or part of what another public name takes, returns or is made of.

    Mechanisms are found by the catalog, which asks their modules for them.
    """
    texts = [*SOURCES, *TESTS, *DOCUMENTS, ROOT / "tasks.py", *(ROOT / "harness").rglob("*.toml")]
    found = []
    files = Counter(word for path in texts for word in set(re.findall(r"\w+", path.read_text())))
    for path in SOURCES:
        if path.parent.parent == ROOT / "impls" / "mechanisms":
            continue
        known = defined(path)
        for shown in public(path):
            signatures = {word for n in public(path) if n != shown for word in in_signature(known[n])}
            if files[shown] < 2 and shown not in signatures:
                found.append(f"{name(path)}: {shown} is public, but used in no other file: make it private")
    none(found)


def in_signature(node: ast.stmt | None) -> set[str]:
    """Names in the annotations and bases of a function or a class with its public methods, or in an assignment."""
    if node is None or isinstance(node, ast.Import | ast.ImportFrom):
        return set()
    inside = list(ast.walk(node))
    hints = [n.annotation for n in inside if isinstance(n, ast.AnnAssign | ast.arg) and n.annotation is not None]
    hints += [n.returns for n in inside if isinstance(n, ast.FunctionDef) and n.returns is not None]
    hints += node.bases if isinstance(node, ast.ClassDef) else []
    hints += [node] if isinstance(node, ast.Assign) else []
    return set(re.findall(r"\w+", " ".join(ast.unparse(hint) for hint in hints)))


def test_every_module_says_what_it_is():
    none(f"{name(p)} has no docstring" for p in SOURCES if p.stat().st_size and not ast.get_docstring(tree(p)))


def test_mechanism_folders_are_complete():
    folders = [p for p in (ROOT / "impls" / "mechanisms").iterdir() if p.is_dir() and not p.name.startswith("__")]
    assert len(folders) > 5
    for folder in folders:
        none(f"{name(folder)} has no {file}" for file in ("README.md", "__init__.py") if not (folder / file).exists())
        found = [folder / file for file in ("mechanism.py", "baseline.py", "native.py") if (folder / file).exists()]
        assert len(found) == 1, f"{name(folder)} is to have one of mechanism.py, baseline.py and native.py"
        lines = len(found[0].read_text().splitlines())
        assert lines <= MECHANISM_LINES_MAX, f"{name(found[0])} has {lines} lines"


def test_no_two_test_files_have_the_same_name_and_none_imports_another():
    names = Counter(path.name for path in TESTS if path.name.startswith("test_"))
    none(f"{n} is there {times} times" for n, times in names.items() if times > 1)
    imported = {p: {n.module or "" for n in ast.walk(tree(p)) if isinstance(n, ast.ImportFrom)} for p in TESTS}
    none(f"{name(p)} imports {m}: share a helper" for p, ms in imported.items() for m in ms if m.startswith("test_"))


def anchor(heading: str) -> str:
    """The anchor that a heading gets where documents are read."""
    text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def test_links_in_documents_lead_somewhere():
    for path in DOCUMENTS:
        for target, mark in re.findall(r"\]\((?!https?:|mailto:)([^)#\s]*)#?([^)\s]*)\)", path.read_text()):
            other = path.parent / target if target else path
            assert other.exists(), f"{name(path)} links to {target}, which is not there"
            if mark and other.suffix == ".md":
                anchors = {anchor(line) for line in re.findall(r"^#+ (.*)$", other.read_text(), re.M)}
                assert mark in anchors, f"{name(path)} links to {target}#{mark}, which is no heading"


def test_the_package_says_of_itself_what_the_readme_says():
    paragraph = re.split(r"\n\s*\n", (ROOT / "README.md").read_text())[1]
    first = re.match(r".*?\.(?=\s|$)", " ".join(paragraph.split()))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert first is not None
    assert project["description"] == first.group()


def test_no_registry_host_and_no_machine_path_in_the_text():
    hosts = re.compile(r"pypi\.org|pythonhosted|repo1?\.maven|/root/|/work/|/tmp/rb")
    paths = [p for p in (*SOURCES, *TESTS, *ROOT.glob("*.*"), ROOT / "inv") if p.is_file() and p != Path(__file__)]
    none(f"{name(path)} names {found.group()}" for path in paths if (found := hosts.search(path.read_text())))
