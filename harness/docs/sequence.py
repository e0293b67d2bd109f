"""Sequence diagrams as SVG: a small part of Mermaid's language, drawn when the site is built.

A README has its protocol as a block of Mermaid, which repository hosts draw too. The site draws it without a script, in
the colours of its theme. What the block may hold: `participant ID as NAME`, `Note over ID: TEXT` (or over `ID,ID`),
`ID->>ID: TEXT` for what is asked or sent, `ID-->>ID: TEXT` for what is answered, and comments behind `%%`.
"""

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from impls.errors import UsageError

_COLUMN, _MARGIN, _HEAD = 172, 8, 34  # px: between two lifelines, around the drawing, a participant's box
_LINE, _CHARACTER = 16, 6.4  # px: of text, its height and its mean width
_GAP = 14  # px between two rows
_PARTICIPANT = re.compile(r"participant (\w+) as (.+)")
_NOTE = re.compile(r"Note over (\w+)(?:,\s*(\w+))?: (.+)")
_MESSAGE = re.compile(r"(\w+)(-?->>)(\w+): (.+)")


@dataclass(frozen=True)
class Note:
    """A remark over one lifeline, or over all from the first to the last named; columns count from 0."""

    first: int
    last: int
    text: str


@dataclass(frozen=True)
class Message:
    """An arrow from one lifeline to another; an answer is dashed."""

    sender: int
    receiver: int
    text: str
    answer: bool


@dataclass(frozen=True)
class Diagram:
    """Names of the lifelines from left to right, and what happens from top to bottom."""

    participants: tuple[str, ...]
    rows: tuple[Note | Message, ...]


def parse(text: str) -> Diagram:
    """Reads a block of Mermaid; raises UsageError for what is no part of the language that is drawn."""
    lines = [line.split("%%")[0].strip() for line in text.splitlines()]
    head, *rest = [line for line in lines if line] or [""]
    if head != "sequenceDiagram":
        raise UsageError(f"A figure begins with sequenceDiagram, not with {head!r}.")
    names: dict[str, str] = {}
    rows: list[Note | Message] = []
    for line in rest:
        if match := _PARTICIPANT.fullmatch(line):
            names[match[1]] = match[2]
        else:
            rows.append(_row(line, list(names)))
    return Diagram(tuple(names.values()), tuple(rows))


def _row(line: str, known: Sequence[str]) -> Note | Message:
    try:
        if match := _NOTE.fullmatch(line):
            first, last = sorted(known.index(name) for name in (match[1], match[2] or match[1]))
            return Note(first, last, match[3])
        if match := _MESSAGE.fullmatch(line):
            return Message(known.index(match[1]), known.index(match[3]), match[4], match[2] == "-->>")
    except ValueError:
        raise UsageError(f"The line {line!r} of a figure names a participant that is not declared above it.") from None
    raise UsageError(f"The line {line!r} of a figure is neither a participant, nor a note, nor a message.")


def draw(diagram: Diagram, title: str) -> str:
    """Returns an SVG element that takes its colours from the page, by the classes of docs/_static/site.css."""
    width = 2 * _MARGIN + _COLUMN * len(diagram.participants)
    parts: list[str] = []
    y = _MARGIN + _HEAD + _GAP
    for row in diagram.rows:
        drawn, height = _note(row, y, len(diagram.participants)) if isinstance(row, Note) else _message(row, y)
        parts += drawn
        y += height + _GAP
    lifelines = [
        f'<line class="lifeline" x1="{_x(i)}" y1="{_MARGIN + _HEAD}" x2="{_x(i)}" y2="{y}"/>'
        for i in range(len(diagram.participants))
    ]
    heads = [part for i, name in enumerate(diagram.participants) for part in _box("head", i, i, _MARGIN, [name])]
    size = f'viewBox="0 0 {width} {y + _MARGIN}" width="{width}"'
    begin = f'<svg class="sequence" {size} role="img" aria-label="{escape(title)}" xmlns="http://www.w3.org/2000/svg">'
    return "\n".join([begin, f"<title>{escape(title)}</title>", *lifelines, *heads, *parts, "</svg>"])


def _x(column: int) -> int:
    """Returns the middle of a column."""
    return _MARGIN + _COLUMN // 2 + column * _COLUMN


def _wrapped(text: str, pixels: float) -> list[str]:
    return textwrap.wrap(text, max(8, int(pixels / _CHARACTER)), break_long_words=False, break_on_hyphens=False)


def _text(kind: str, x: float, y: float, lines: Sequence[str]) -> list[str]:
    """Returns lines of text, centred at x, of which the first has its base line at y."""
    return [
        f'<text class="{kind}" x="{x:g}" y="{y + i * _LINE:g}">{escape(line)}</text>' for i, line in enumerate(lines)
    ]


def _box(kind: str, first: int, last: int, y: int, lines: Sequence[str]) -> list[str]:
    """Returns a box over columns, with text in it."""
    left, right = _x(first) - _COLUMN // 2 + 8, _x(last) + _COLUMN // 2 - 8
    height = _HEAD if kind == "head" else len(lines) * _LINE + 10
    rectangle = f'<rect class="{kind}" x="{left}" y="{y}" width="{right - left}" height="{height}" rx="4"/>'
    base = y + (height - len(lines) * _LINE) / 2 + _LINE - 4
    return [rectangle, *_text(f"{kind}-text", (left + right) / 2, base, lines)]


def _note(note: Note, y: int, columns: int) -> tuple[list[str], int]:
    """Returns a note and its height; one over all lifelines begins a part, such as an epoch."""
    kind = "part" if note.last - note.first + 1 == columns else "note"
    lines = _wrapped(note.text, _x(note.last) - _x(note.first) + _COLUMN - 30)
    return _box(kind, note.first, note.last, y, lines), len(lines) * _LINE + 10


def _message(message: Message, y: int) -> tuple[list[str], int]:
    """Returns an arrow with its text above it, and its height; one to its sender turns back."""
    start, end = _x(message.sender), _x(message.receiver)
    kind = "answer" if message.answer else "message"
    if start == end:
        lines = _wrapped(message.text, _COLUMN - 50)
        height = max(len(lines) * _LINE, 24)
        path = f"M{start} {y + 4} h18 v{height - 8} h-14"
        return [_arrow(kind, path), *_tip(start + 3, y + height - 4, -1),
                *(t.replace("<text ", '<text text-anchor="start" ') for t in
                  _text("beside-text", start + 26, y + 14, lines))], height  # fmt: skip
    lines = _wrapped(message.text, abs(end - start) - 16)
    line = y + len(lines) * _LINE + 4
    way = 1 if end > start else -1
    path = f"M{start} {line} H{end - 6 * way}"
    return [
        *_text("message-text", (start + end) / 2, y + _LINE - 4, lines),
        _arrow(kind, path),
        *_tip(end, line, way),
    ], len(lines) * _LINE + 8


def _arrow(kind: str, path: str) -> str:
    return f'<path class="{kind}" d="{path}"/>'


def _tip(x: int, y: int, way: int) -> list[str]:
    return [f'<path class="tip" d="M{x} {y} l{-9 * way} -4.5 v9 z"/>']
