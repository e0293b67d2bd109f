"""One word for one thing: names that the project gave up for the field's come back in no option, column or heading.

No two public classes have one name, and what a function is called says what it does.
"""

import ast
import json
import re
from collections import defaultdict
from pathlib import Path

import pytest

import tasks
from harness.cli.verb import Verb
from plots.metrics import METRICS

ROOT = Path(__file__).parents[2]
_FORMS = {  # of former words that inflect, or that mean something else by themselves
    "mends": r"mends?", "peer": r"peers?", "seam": r"seams?", "goes over": r"goes? over|gone over|went over",
    "figures": r"query's figures", "shadow": r"shadows? of",
}  # fmt: skip


def former():
    """The glossary's former words, as patterns, with what they are called now."""
    for line in (ROOT / "docs" / "glossary.md").read_text().splitlines():
        word, _, was = (cell.strip() for cell in line.strip("|").split("|")) if line.count("|") == 4 else ("", "", "")
        if was and was not in {"formerly", "---"}:
            yield _FORMS.get(was, re.escape(was)), word.rpartition(", ")[2]


FORMER = dict(former())


def options():
    groups = tasks.namespace.collections.items()
    every = [*tasks.namespace.tasks.items(), *((f"{g}.{n}", t) for g, c in groups for n, t in c.tasks.items())]
    for name, task in every:
        for option in task.options if isinstance(task, Verb) else ():
            yield f"./inv {name} {option.flag}", f"{option.name} {option.help}"


def headings():
    for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("impls/**/*.md")):
        if path.name != "CHANGELOG.md":
            yield from ((f"{path.name}", line) for line in path.read_text().splitlines() if line.startswith("#"))


def columns():
    yield from ((metric.name, f"{metric.label} {metric.meaning}") for metric in METRICS)
    schema = json.loads((ROOT / "harness" / "results" / "schema.json").read_text())
    yield "schema.json", " ".join(re.findall(r'"description": "([^"]*)"', json.dumps(schema)))


def test_a_record_is_followed_in_twenty_five_words_that_the_glossary_has():
    page, glossary = ((ROOT / "docs" / name).read_text() for name in ("one-record.md", "glossary.md"))
    words = set(re.findall(r"\*\*([a-z ]+)\*\*", page))
    assert len(words) <= 25
    assert not [word for word in words if word.removesuffix("s") not in glossary]


def test_the_lines_that_the_architecture_names_are_those_of_its_methods():
    text, code = ((ROOT / name).read_text() for name in ("ARCHITECTURE.md", "impls/worker/worker.py"))
    named = re.findall(r"`Worker\.(\w+)`\s\(line (\d+)\)", text)
    assert [name for name, _ in named] == ["begin", "commit", "end"]
    assert all(f"    def {name}(" in code.splitlines()[int(line) - 1] for name, line in named)


@pytest.mark.parametrize("places", [options, headings, columns])
def test_a_word_that_was_given_up_does_not_come_back(places):
    found = [
        f"{where}: {match[0]!r} is now {now!r}"
        for where, text in places() for former, now in FORMER.items()
        if (match := re.search(rf"\b({former})\b", text, re.IGNORECASE))
    ]  # fmt: skip
    assert not found


def test_the_words_of_options_are_read():
    assert len(FORMER) >= 9
    assert len(list(options())) > 100
    assert len(list(headings())) > 100
    assert len(list(columns())) > 10


PACKAGES = ("generators", "harness", "impls", "plots", "rescale_bench")
SPOKEN = {"told", "said", "heard", "given", "asked", "found"}  # none of them says what a function does
SOURCES = {
    path.relative_to(ROOT).as_posix(): path.read_text()
    for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))
}  # fmt: skip


def shared(sources):
    """The names that several public classes have, with the files of these."""
    places = defaultdict(list)
    for path, text in sources.items():
        for node in ast.parse(text).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(path)
    return [f"{name}: {', '.join(paths)}" for name, paths in places.items() if len(paths) > 1]


def spoken(sources):
    """The classes, functions and methods with a name of `SPOKEN`, with where they are."""
    named = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    return [
        f"{path}:{node.lineno}: {node.name}"
        for path, text in sources.items() for node in ast.walk(ast.parse(text))
        if isinstance(node, named) and node.name.strip("_").lower() in SPOKEN
    ]  # fmt: skip


def test_no_two_public_classes_have_one_name():
    found = shared(SOURCES)
    assert not found


def test_a_function_is_named_by_what_it_does():
    found = spoken(SOURCES)
    assert not found


def test_the_names_of_classes_and_functions_are_read():
    assert len(SOURCES) > 400
    one, other = "class Case:\n    class Part: ...", "class _Case: ...\nclass Part: ..."
    assert shared({"a.py": one, "b.py": other, "c.py": one}) == ["Case: a.py, c.py"]
    named = "class Log:\n    def _told(self): ...\n    def telling(self): ..."
    assert spoken({"a.py": named}) == ["a.py:2: _told"]


def test_no_value_goes_from_bin_to_bin_by_the_drivers_plans():
    """What is over all bins is the second stage of a chain: nothing is left of the partials that served it."""
    files = list((ROOT / "impls").rglob("*.py"))
    gone = re.compile(r"\b(contribute|on_merged|merge_partials|partials|Partial)\b")
    assert len(files) > 100
    assert not [path.name for path in files if gone.search(path.read_text())]
