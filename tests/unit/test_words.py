"""One word for one thing: names that the project gave up for the field's come back in no option, column or heading."""

import json
import re
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
