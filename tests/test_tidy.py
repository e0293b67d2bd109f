"""House rules that a program can check; each failure names the file, the line and what to do instead."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("generators", "impls", "harness", "plots")
SOURCES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
FILE_LINES_MAX, FUNCTION_LINES_MAX = 400, 70
FORBIDDEN_IMPORTS = {
    "generators": ("impls", "harness", "plots"),
    "impls": ("harness", "plots", "generators"),
    "plots": ("impls", "generators", "pyspark"),
}
BANNED = {
    r"\btime\.time\(": "time.monotonic() for durations, generators.clock.now_us() for wall clock",
    r"\bhasattr\(": "declare the method on the interface",
    r"\bF(?:IX)ME\b|\bX(?:X)X\b|\bH(?:A)CK\b": "finish it or write an issue",
    r"\brandom\.(?:random|randint|choice|shuffle)\(": "a seeded numpy Generator",
    r"\beval\(": "parse the input",
}


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_layers_import_downwards_only(path):
    package = path.relative_to(ROOT).parts[0]
    imported = {
        module.split(".")[0]
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for module in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names])
    }
    assert not imported & set(FORBIDDEN_IMPORTS.get(package, ())), f"{name(path)} imports from a layer above it"


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_no_banned_call(path):
    for number, line in enumerate(path.read_text().splitlines(), 1):
        for pattern, instead in BANNED.items():
            assert not re.search(pattern, line), f"{name(path)}:{number}: use {instead}"


@pytest.mark.parametrize("path", SOURCES + TESTS, ids=name)
def test_files_and_functions_stay_short(path):
    lines = len(path.read_text().splitlines())
    assert lines <= FILE_LINES_MAX, f"{name(path)} has {lines} lines, {FILE_LINES_MAX} are allowed"
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or 0) - node.lineno + 1
            assert length <= FUNCTION_LINES_MAX, f"{name(path)}:{node.lineno}: {node.name} has {length} lines"


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_public_names_are_listed_and_sorted(path):
    listed = [
        ast.literal_eval(node.value)
        for node in tree(path).body
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets)
    ]
    public = [
        node.name
        for node in tree(path).body
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_")
    ]
    if public:
        assert listed, f"{name(path)} has public names but no __all__"
        unknown = [n for n in listed[0] if n not in public and not _assigned(path, n)]
        assert not unknown, f"{name(path)}: __all__ names {unknown}, which it does not define"


def _assigned(path: Path, wanted: str) -> bool:
    return (
        re.search(rf"^{wanted}\b|import.*\b{wanted}\b|^    {wanted},$|, {wanted} =", path.read_text(), re.M) is not None
    )


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_every_module_says_what_it_is(path):
    if path.stat().st_size:
        text = ast.get_docstring(tree(path))
        assert text, f"{name(path)} has no docstring"


def test_mechanism_folders_are_complete():
    folders = sorted(path.parent for path in (ROOT / "impls" / "mechanisms").glob("*/mechanism.py"))
    assert folders
    for folder in folders:
        assert (folder / "README.md").exists(), f"{name(folder)} has no README.md"
        assert (folder / "__init__.py").exists(), f"{name(folder)} has no __init__.py"
        assert len((folder / "mechanism.py").read_text().splitlines()) <= 150, f"{name(folder)}: over 150 lines"


def test_no_two_test_files_have_the_same_name():
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert len(names) == len(set(names)), sorted(n for n in set(names) if names.count(n) > 1)


def test_links_in_documents_lead_somewhere():
    for path in [*ROOT.glob("*.md"), *(p for package in PACKAGES for p in (ROOT / package).rglob("*.md"))]:
        for link in re.findall(r"\]\((?!https?:|#|mailto:)([^)#]+)", path.read_text()):
            assert (path.parent / link).exists(), f"{name(path)} links to {link}, which is not there"


def test_no_registry_host_and_no_machine_path_in_the_text():
    hosts = re.compile(r"pypi\.org|pythonhosted|repo1?\.maven|/root/|/work/|/tmp/rb")
    for path in [*SOURCES, *TESTS, *ROOT.glob("*.*"), ROOT / "inv"]:
        if path.is_file() and path != Path(__file__):
            found = hosts.search(path.read_text())
            assert not found, f"{name(path)} names {found.group() if found else ''}"
