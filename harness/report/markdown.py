"""Tables as Markdown."""

from collections.abc import Iterable, Iterator, Sequence

_RULES = {"l": "---", "r": "---:"}


def table_lines(columns: Sequence[str], rows: Iterable[Sequence[str]], align: str) -> Iterator[str]:
    """Yields a table's lines; `align` has l (left) or r (right) for each column, its last letter for those behind."""
    rules = [_RULES[letter] for letter in align.ljust(len(columns), align[-1])]
    yield _line(columns)
    yield f"|{'|'.join(rules)}|"
    yield from (_line(row) for row in rows)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
