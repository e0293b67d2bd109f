"""Figures from Mermaid's text: what is read, what is refused, and that nothing is drawn outside of the picture."""

import re
import xml.etree.ElementTree as ET

import pytest
from blocks import ROOT
from markdown_it import MarkdownIt

from harness.docs.sequence import Message, Note, draw, parse
from impls.errors import UsageError

TEXT = """sequenceDiagram
    participant D as driver  %% who plans
    participant N as new owner
    Note over D,N: epoch e
    D->>N: order: pull <these> bins
    N-->>D: report
    N->>N: apply
    Note over N: records
"""
READMES = sorted((ROOT / "impls" / "mechanisms").glob("*/README.md"))


def figures_of(path):
    return [t.content for t in MarkdownIt().parse(path.read_text()) if t.type == "fence" and t.info == "mermaid"]


def test_a_text_is_read():
    diagram = parse(TEXT)
    assert diagram.participants == ("driver", "new owner")
    assert diagram.rows == (
        Note(0, 1, "epoch e"),
        Message(0, 1, "order: pull <these> bins", answer=False),
        Message(1, 0, "report", answer=True),
        Message(1, 1, "apply", answer=False),
        Note(1, 1, "records"),
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("flowchart LR", "begins with sequenceDiagram, not with 'flowchart LR'"),
        ("sequenceDiagram\n D->>N: x", "names a participant that is not declared"),
        ("sequenceDiagram\n participant D as d\n Note over D,X: y", "names a participant that is not declared"),
        ("sequenceDiagram\n participant D as d\n loop forever", "neither a participant, nor a note, nor a message"),
    ],
)
def test_what_is_not_drawn_is_refused_with_its_line(text, says):
    with pytest.raises(UsageError, match=re.escape(says)):
        parse(text)


@pytest.mark.parametrize("path", READMES, ids=lambda path: path.parent.name)
def test_every_mechanism_has_a_figure_whose_parts_lie_in_it(path):
    (text,) = figures_of(path)
    drawn = draw(parse(text), "Protocol")
    assert "\n\n" not in drawn, "an empty line would end the block of HTML"
    svg = ET.fromstring(drawn)
    width, height = (float(n) for n in svg.get("viewBox").split()[2:])
    name = "{http://www.w3.org/2000/svg}"
    for box in svg.iter(f"{name}rect"):
        x, y, w, h = (float(box.get(key)) for key in ("x", "y", "width", "height"))
        assert x >= 0
        assert y >= 0
        assert x + w <= width
        assert y + h <= height
    for words in svg.iter(f"{name}text"):
        assert 0 <= float(words.get("x")) <= width
        assert 0 <= float(words.get("y")) <= height
    told = " ".join(words.text for words in svg.iter(f"{name}text"))
    for row in parse(text).rows:
        assert row.text in told or set(row.text.split()) <= set(told.split())


def test_text_is_escaped():
    assert "pull &lt;these&gt;" in draw(parse(TEXT), "a <title>")
    ET.fromstring(draw(parse(TEXT), "a <title>"))
